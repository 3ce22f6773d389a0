"""Run by a Python that has transformers and torch: loads a checkpoint, answers one question, and ends.

Standard input has the question as JSON: ``checkpoint``, ``words``, ``picture`` (a path or null), ``most_tokens``. Standard
output gets one JSON object: the answer; ``missing``, a package; or ``error``, a sentence. Loads no code from the checkpoint
and nothing from the network. Knows nothing of this project's packages: they need not be installed there.
"""

import json
import os
import sys
import time
from typing import Any


class Unanswerable(Exception):
    """The checkpoint cannot answer this question; the message is a sentence."""


def answer(asked: Any) -> dict[str, Any]:
    """Returns the answer to a question, and what it took."""
    began = time.monotonic()
    import torch  # here, so that a missing package is told
    import transformers

    folder, only_local = asked["checkpoint"], {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **only_local)
    sees = hasattr(config, "vision_config")
    if asked["picture"] and not sees:
        raise Unanswerable("the model sees no pictures: its config.json has no vision_config")
    reader = transformers.AutoProcessor if sees else transformers.AutoTokenizer
    kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    processor = reader.from_pretrained(folder, **only_local)
    known_as = "dtype" if version_of(transformers) >= (4, 56) else "torch_dtype"
    model: Any = kind.from_pretrained(folder, **only_local, **{known_as: "auto"}, **placed(torch))
    if torch.cuda.is_available() and not hasattr(model, "hf_device_map"):
        model = model.to("cuda")
    model.eval()
    inputs = prompt(processor, asked, sees).to(model.device)
    loaded = time.monotonic()
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=asked["most_tokens"], do_sample=False)
    before = inputs["input_ids"].shape[1]
    tokens = output[0, before:].tolist()
    return {
        "answer": processor.decode(tokens, skip_special_tokens=True),
        "cut_off": len(tokens) == asked["most_tokens"] and tokens[-1] not in ends_of(model),
        "prompt_tokens": before,
        "completion_tokens": len(tokens),
        "load_seconds": loaded - began,
        "seconds": time.monotonic() - loaded,
        "device": str(model.device),
        "class": type(model).__name__,
    }


def prompt(processor: Any, asked: Any, sees: bool) -> Any:
    """Returns the question as the model takes it: by the checkpoint's chat template, or as it is where there is none."""
    if getattr(processor, "chat_template", None) is None and not asked["picture"]:
        return processor(text=asked["words"], return_tensors="pt")
    content: Any = asked["words"]
    if sees:
        content = [{"type": "text", "text": content}]
    if asked["picture"]:
        from PIL import Image  # here, as only pictures need it

        content = [{"type": "image", "image": Image.open(asked["picture"]).convert("RGB")}, *content]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


def placed(torch: Any) -> dict[str, Any]:
    """Returns the options that spread a model over all GPUs, where the package for it is installed."""
    try:
        import accelerate  # noqa: F401 (here, because it is optional)
    except ImportError:
        return {}
    return {"device_map": "auto"} if torch.cuda.is_available() else {}


def version_of(package: Any) -> tuple[int, ...]:
    """Returns the first two numbers of a package's version."""
    return tuple(int(part) for part in package.__version__.split(".")[:2])


def ends_of(model: Any) -> list[int]:
    """Returns the tokens at which the model ends a reply."""
    ends = model.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [ends]


def main() -> None:
    """Answers the question on standard input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    try:
        said = answer(json.load(sys.stdin))
    except ModuleNotFoundError as error:
        said = {"missing": error.name or str(error)}
    except Unanswerable as error:
        said = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is told in one sentence
        said = {"error": f"{type(error).__name__}: {error}"}
    json.dump(said, answers)
    answers.close()


if __name__ == "__main__":
    main()
