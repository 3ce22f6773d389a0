"""The make-believe tokeniser keeps the promises that training code relies on."""

from hypothesis import given
from hypothesis import strategies as st

from rollout_tasks.models.scripted.tokens import completion_pieces, count, prompt_pieces, tokenise

TEXT = st.text(max_size=60)


@given(st.lists(TEXT | st.sampled_from(["<|end|>", "<|image|>", " a  b\n", "\t"]), max_size=5))
def test_tokens_put_together_are_the_text_and_counting_agrees(pieces):
    tokens = tokenise(pieces)

    assert "".join(token.text for token in tokens) == "".join(pieces)
    assert count(pieces) == len(tokens)
    assert all(token.id >= 0 and -1 <= token.logprob < 0 for token in tokens)


@given(question=TEXT, thought=TEXT, arguments=TEXT, result=TEXT)
def test_a_later_prompt_begins_with_the_earlier_prompt_and_reply(question, thought, arguments, result):
    asked = [{"role": "system", "content": "Solve it."}, {"role": "user", "content": question}]
    call = {"id": "call_0_0", "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    said = {"role": "assistant", "content": thought, "tool_calls": [call]}
    later = [*asked, said, {"role": "tool", "tool_call_id": "call_0_0", "content": result}]

    before = tokenise(prompt_pieces(asked)) + tokenise(completion_pieces(said))

    assert tokenise(prompt_pieces(later))[: len(before)] == before


def test_an_image_is_one_token_whatever_its_size():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}

    assert count(completion_pieces({"role": "user", "content": [{"type": "text", "text": "Look"}, image]})) == 3
