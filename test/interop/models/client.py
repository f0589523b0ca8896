# Asks models through the gateway at argv[1] with the official clients, and prints a line for each exchange: its name, and the
# tokens that the client was told, of the prompt and of the answer; 0 0 if it was told none.
import sys

import anthropic
import openai

url = sys.argv[1]
o = openai.OpenAI(base_url=url + "/v1", api_key="k", max_retries=0)
a = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
messages = [{"role": "user", "content": "How are you?"}]


def say(name, read=0, written=0):
    print(name, read, written, flush=True)


u = o.chat.completions.create(model="m", messages=messages, max_completion_tokens=30).usage
say("chat", u.prompt_tokens, u.completion_tokens)

text, u = "", None
for event in o.chat.completions.create(model="m", messages=messages, max_tokens=30, stream=True):
    u = event.usage or u
    text += "".join(c.delta.content or "" for c in event.choices)
assert text == "word " * 30, text
say("chat streamed", u.prompt_tokens, u.completion_tokens)

for event in o.chat.completions.create(model="m", messages=messages, stream=True, stream_options={"include_usage": True}):
    u = event.usage or u
say("chat that asks", u.prompt_tokens, u.completion_tokens)

u = o.responses.create(model="m", input="How are you?", max_output_tokens=30).usage
say("response", u.input_tokens, u.output_tokens)

with o.responses.stream(model="m", input="How are you?", max_output_tokens=30) as stream:
    for event in stream:
        if event.type == "response.completed":
            u = event.response.usage
say("response streamed", u.input_tokens, u.output_tokens)

u = o.embeddings.create(model="m", input="How are you?", encoding_format="float").usage
say("embedding", u.prompt_tokens)

u = a.messages.create(model="m", messages=messages, max_tokens=30).usage
say("message", u.input_tokens + u.cache_creation_input_tokens + u.cache_read_input_tokens, u.output_tokens)

with a.messages.stream(model="m", messages=messages, max_tokens=30) as stream:
    u = stream.get_final_message().usage
say("message streamed", u.input_tokens + u.cache_creation_input_tokens + u.cache_read_input_tokens, u.output_tokens)

# One that leaves after its first words.
stream = o.chat.completions.create(model="m", messages=messages, max_tokens=1_000_000, stream=True)  # more than sockets hold
next(iter(stream))
stream.close()
say("chat that is left")
