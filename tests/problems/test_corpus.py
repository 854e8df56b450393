from __future__ import annotations

import hashlib

import pytest

from syncline.errors import SpecError
from syncline.problems import Rows, TextGPT
from syncline.problems.text_gpt import (
    is_held_out,
    library_files,
    standard_library,
    text_file,
    torch_source,
)

THE_FILE = bytes(range(256)) * 40


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A small standard library with everything that does not belong to a corpus."""
    names = [f"module_{number}.py" for number in range(60)]
    extra = ["package/inner.py", "package/readme.txt", "test/test_a.py", "package/tests/test_b.py"]
    extra += ["site-packages/torch.py", "_sysconfigdata__linux.py", "config-3.11/config.py", "sitecustomize.py"]
    for name in names + extra:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(f"# {name}\n".encode())
    monkeypatch.setattr("syncline.problems.text_gpt.sysconfig.get_path", lambda kind: str(tmp_path))
    return tmp_path, sorted([*names, "package/inner.py"])


def test_the_standard_library_is_read_the_same_each_time():
    once = standard_library()
    again = standard_library.__wrapped__()
    assert once.sha256 == again.sha256
    assert once.train.equal(again.train)
    assert 5e6 < len(once.train) < 30e6
    assert 0.03 < len(once.validation) / len(once.train) < 0.2


def test_pytorchs_source_is_another_text_without_its_tests():
    text, other = torch_source(), standard_library()
    assert len(text.train) > 2e7 and 0.03 < len(text.validation) / len(text.train) < 0.2
    assert text.sha256 != other.sha256 and text.name.startswith("source of PyTorch 2.")
    windows = {bytes(text.validation[at : at + 64].tolist()) for at in range(0, len(text.validation) - 64, 9973)}
    known = bytes(other.train.numpy())
    assert sum(window in known for window in windows) < 0.05 * len(windows)  # licences are alike
    assert "import torch" in bytes(text.train[:100_000].tolist()).decode() and len(windows) > 100


def test_only_portable_library_files_are_in_it(library):
    root, expected = library
    assert library_files(root) == expected


def test_train_and_validation_share_no_file(library):
    _, expected = library
    corpus = standard_library.__wrapped__()
    train, validation = (
        "".join(f"# {name}\n" for name in expected if is_held_out(name) == side).encode() for side in (False, True)
    )
    assert validation
    assert bytes(corpus.train.tolist()) == train
    assert bytes(corpus.validation.tolist()) == validation
    assert corpus.sha256 == hashlib.sha256(train + validation).hexdigest()


@pytest.mark.parametrize("path", ["cProfile.py", "asyncio/locks.py", "collections/abc.py", "ast.py", "json/decoder.py"])
def test_the_split_of_files_is_stable(path):
    one_in_ten = int(hashlib.sha256(path.encode()).hexdigest()[:16], 16) % 10 == 0
    assert is_held_out(path) == one_in_ten == (path in {"cProfile.py", "asyncio/locks.py", "collections/abc.py"})


def test_one_file_in_ten_is_held_out():
    share = sum(is_held_out(f"package/module_{number}.py") for number in range(10_000)) / 10_000
    assert share == pytest.approx(0.1, abs=4.5 * 0.003)


def test_an_interpreter_without_sources_asks_for_a_path(tmp_path, monkeypatch):
    monkeypatch.setattr("syncline.problems.text_gpt.sysconfig.get_path", lambda kind: str(tmp_path))
    with pytest.raises(SpecError, match=r"^problem\.path: .* holds no Python source$"):
        standard_library.__wrapped__()


def test_the_end_of_a_users_file_is_held_out(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(THE_FILE)
    corpus = text_file(path)
    assert bytes(corpus.train.tolist() + corpus.validation.tolist()) == THE_FILE
    assert len(corpus.validation) == len(THE_FILE) // 10
    assert corpus.sha256 == hashlib.sha256(THE_FILE).hexdigest()


def test_a_users_file_is_recorded_with_the_result(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(THE_FILE)
    facts = TextGPT(path=str(path)).build(Rows.whole_group(1)).describe()
    assert facts["corpus"] == "text.txt"
    assert facts["corpus_sha256"] == hashlib.sha256(THE_FILE).hexdigest()
    assert (facts["train_bytes"], facts["validation_bytes"]) == (9216, 1024)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "a text file that can be read (no such file or directory)"),
        (b"", "a text file that is not empty"),
        (b"short", "a text of at least 650 bytes, whose last tenth is longer than the context"),
        (b"x" * 649, "a text of at least 650 bytes, whose last tenth is longer than the context"),
    ],
)
def test_a_file_that_cannot_be_learned_from_is_explained_in_one_line(tmp_path, content, expected):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError) as error:
        TextGPT(path=str(path)).build(Rows.whole_group(1))
    assert str(error.value) == f"problem.path: got {str(path)!r}; expected {expected}"


def test_a_folder_is_no_text(tmp_path):
    with pytest.raises(SpecError, match=r"can be read \(.+\)$"):
        text_file(tmp_path)


def test_the_shortest_text_that_is_promised_is_enough(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"x" * 650)
    assert TextGPT(path=str(path)).build(Rows.whole_group(1)).step_gradients(0).isfinite().all()
