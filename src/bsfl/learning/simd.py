# mypy: ignore-errors
"""The inner loops of a CNN for numba, as vectors that stay in registers.

What a loop reads or writes comes as (array, start, stride, ...): arrays are float32, and starts and
strides count elements. A vector has 16 floats; LLVM splits it for processors with shorter ones.
"""

import inspect

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
FLOAT, INT = ir.FloatType(), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)


def _loop(emit, result=types.void):
    """Make an intrinsic of a function (builder, ...) that writes LLVM's code."""

    def typed(typing, *given):
        def code(context, builder, signature, args):
            def plain(kind, value):
                if isinstance(kind, types.BaseTuple):
                    parts = cgutils.unpack_tuple(builder, value)
                    return [plain(k, v) for k, v in zip(kind, parts, strict=True)]
                if isinstance(kind, types.Array):
                    return context.make_array(kind)(context, builder, value).data
                return context.cast(builder, value, kind, types.intp)

            found = emit(builder, *map(plain, signature.args, args))
            return context.get_dummy_value() if found is None else found

        return result(*map(types.unliteral, given)), code

    typed.__signature__ = inspect.signature(emit)
    return intrinsic(typed)


def _load(b, data, at, kind=VECTOR):
    return b.load(b.bitcast(b.gep(data, [at]), kind.as_pointer()), align=4)


def _store(b, value, data, at):
    b.store(value, b.bitcast(b.gep(data, [at]), value.type.as_pointer()), align=4)


def _variable(b, value):
    cell = cgutils.alloca_once(b, value.type)
    b.store(value, cell)
    return cell


def _splat(b, number):
    nothing, zeros = VECTOR(ir.Undefined), ir.VectorType(INT, LANES)(None)
    return b.shuffle_vector(b.insert_element(nothing, number, INT(0)), nothing, zeros)


def _sum(b, v):
    for size in (8, 4, 2, 1):
        halves = (ir.VectorType(INT, size)(list(range(i, i + size))) for i in (0, size))
        v = b.fadd(*(b.shuffle_vector(v, v, half) for half in halves))
    return b.extract_element(v, INT(0))


def _fma(b, x, y, z):
    name = "llvm.fmuladd.v16f32" if x.type == VECTOR else "llvm.fmuladd.f32"
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), [x, y, z])


def _places(b, start, step, n):
    """Return start, start + step, ..."""
    places = [start]
    while len(places) < n:
        places.append(b.add(places[-1], step))
    return places


def _grid(b, start, row, column, n):
    """Return n x n places, row by row."""
    return [at for line in _places(b, start, row, n) for at in _places(b, line, column, n)]


def product(rows, columns, *, dots=False, repeat=1, onto=False):
    """Return the loop out[r, c] = sum over k < n of a[r, k] b[c, k].

    Args:
        rows: Rows of a, in numbers.
        columns: Columns of b, in vectors.
        dots: Both a and b are read, and k counted, in vectors; out is written in numbers.
        repeat: Go on so many times, from places in a that are a further stride apart.
        onto: A further array (old, new) asks for old * out + new * sum.
    """

    def emit(b, to, a, right, n, mix):
        (out, o, o_row, o_column), (left, i, row, step, *further) = to, a
        cells = [[_variable(b, VECTOR(None)) for _ in range(columns)] for _ in range(rows)]
        kernel, k_at = right[0], _variable(b, right[1])
        for i_at in _places(b, i, *further or [None], repeat):
            with cgutils.for_range(b, n) as loop:
                wide = [_load(b, kernel, at) for at in _places(b, b.load(k_at), right[2], columns)]
                start = b.add(i_at, b.mul(loop.index, step))
                for line, at in zip(cells, _places(b, start, row, rows), strict=True):
                    x = _load(b, left, at) if dots else _splat(b, _load(b, left, at, FLOAT))
                    for cell, v in zip(line, wide, strict=True):
                        b.store(_fma(b, x, v, b.load(cell)), cell)
                b.store(b.add(b.load(k_at), right[3]), k_at)
        for line, start in zip(cells, _places(b, o, o_row, rows), strict=True):
            for cell, at in zip(line, _places(b, start, o_column, columns), strict=True):
                v = _sum(b, b.load(cell)) if dots else b.load(cell)
                if onto:
                    old, new = (_splat(b, _load(b, mix, n.type(i), FLOAT)) for i in (0, 1))
                    v = _fma(b, new, v, b.fmul(old, _load(b, out, at)))
                _store(b, v, out, at)

    return _loop(emit)


def sandwich(matrix):
    """Return the loop out = matrix x matrix^T for a grid x of vectors."""

    def apply(b, line):
        for weights in matrix:
            used = [(k, v) for k, v in zip(weights, line, strict=True) if k]
            signs = [k for k, _ in used]
            terms = [b.fmul(_splat(b, FLOAT(abs(k))), v) for k, v in used]
            total = terms[0] if signs[0] > 0 else b.fneg(terms[0])
            for sign, term in zip(signs[1:], terms[1:], strict=True):
                total = (b.fadd if sign > 0 else b.fsub)(total, term)
            yield total

    def emit(b, to, source):
        (out, o, o_row, o_column), (x, i, row, column), n = to, source, len(matrix[0])
        vectors = [_load(b, x, at) for at in _grid(b, i, row, column, n)]
        lines = [apply(b, vectors[k : k + n]) for k in range(0, n * n, n)]
        turned = (apply(b, line) for line in zip(*lines, strict=True))
        made = [v for line in zip(*turned, strict=True) for v in line]
        for v, at in zip(made, _grid(b, o, o_row, o_column, len(matrix)), strict=True):
            _store(b, v, out, at)

    return _loop(emit)


@_loop
def pool(b, to, choice, source, bias, origin):
    """Write relu(largest + bias) of a 2 x 2 grid, and the place of the first largest, or -1."""
    (x, *grid), zero = source, VECTOR(None)
    best = place = None
    for at, where in zip(_grid(b, *grid, 2), _grid(b, *origin, 2), strict=True):
        v, here = _load(b, x, at), _splat(b, b.sitofp(where, FLOAT))
        keep = best and b.fcmp_ordered(">=", best, v)
        best, place = (b.select(keep, best, v), b.select(keep, place, here)) if keep else (v, here)
    best = b.fadd(best, _load(b, *bias))
    dead = b.fcmp_ordered("<=", best, zero)
    _store(b, b.select(dead, zero, best), *to)
    _store(b, b.select(dead, _splat(b, FLOAT(-1.0)), place), *choice)


def _sift(b, places, values, count, choice, slope, step, n):
    """Append the places that are not negative, and their slopes, to lists; return the length."""
    length = _variable(b, count)
    with cgutils.for_range(b, n) as loop:
        skip, end = b.mul(loop.index, step), b.load(length)
        place, value = (_load(b, a, b.add(i, skip), FLOAT) for a, i in (choice, slope))
        _store(b, place, places, end)
        _store(b, value, values, end)
        found = b.zext(b.fcmp_ordered(">=", place, FLOAT(0)), end.type)
        b.store(b.add(end, found), length)
    return b.load(length)


sift = _loop(_sift, types.intp)


def taps(*, wide):
    """Return the loop that adds g x[place + ...] to the slopes of a 3 x 3 kernel, for a list of g.

    It returns the sum of g. With `wide`, 16 channels are done at once, and g times the kernel is
    added to the slopes of the inputs.
    """
    kind = VECTOR if wide else FLOAT

    def emit(b, places, values, n, kernel_slope, kernel, x, x_slope, row, column):
        cells_at = _places(b, kernel_slope[1], column, 9)
        cells = [_variable(b, _load(b, kernel_slope[0], at, kind)) for at in cells_at]
        weights = [_load(b, kernel, at) if wide else None for at in cells_at]
        total = _variable(b, FLOAT(0))
        with cgutils.for_range(b, n) as loop:
            number = _load(b, values, loop.index, FLOAT)
            g = _splat(b, number) if wide else number
            b.store(b.fadd(b.load(total), number), total)
            place = b.fptosi(_load(b, places, loop.index, FLOAT), n.type)
            ats, slope_ats = (_grid(b, b.add(i, place), row, column, 3) for _, i in (x, x_slope))
            for cell, weight, at, slope_at in zip(cells, weights, ats, slope_ats, strict=True):
                b.store(_fma(b, g, _load(b, x[0], at, kind), b.load(cell)), cell)
                if wide:
                    old = _load(b, x_slope[0], slope_at)
                    _store(b, _fma(b, g, weight, old), x_slope[0], slope_at)
        for cell, at in zip(cells, cells_at, strict=True):
            _store(b, b.load(cell), kernel_slope[0], at)
        return b.load(total)

    return _loop(emit, types.float32)
