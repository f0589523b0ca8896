package usage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/usage"
	"github.com/weir-proxy/weir/test/rounds"
)

// A response is one as an API documents it.
type response struct {
	name, format, kind, body string
	input, cached, output    int64
}

func responses() []response {
	const event, doc, lines = "text/event-stream; charset=utf-8", "application/json", "application/x-ndjson"
	return []response{
		{"OpenAI chat", "openai", doc, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"gpt","choices":[{"index":0,"message":{"role":"assistant","content":"say \"usage\": {\"prompt_tokens\": 9999} \\"},"finish_reason":"stop"}],
			"usage":{"prompt_tokens":1200,"completion_tokens":350,"total_tokens":1550,"prompt_tokens_details":{"cached_tokens":1000,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":300}},"service_tier":"default"}`, 200, 1000, 350},
		{"OpenAI chat, streamed", "openai", event, "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"Hel\"}}],\"usage\":null}\n\ndata: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"lo\"}}],\"usage\":null}\n\ndata: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"total_tokens\":29}}\n\ndata: [DONE]\n\n", 19, 0, 10},
		{"OpenAI embeddings", "openai", doc, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-3,3]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}`, 8, 0, 0},
		{"OpenAI responses", "openai", doc, `{"id":"resp_1","object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":6},"output_tokens":87,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":123}}`, 30, 6, 87},
		{"OpenAI responses, streamed", "openai", event, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\nevent: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"usage\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":37,\"output_tokens\":11,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":48}}}\n\n", 37, 0, 11},
		{"Azure", "openai", doc, `{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"message":{"content":"x"}}],"prompt_filter_results":[{"prompt_index":0}],"usage":{"completion_tokens":33,"prompt_tokens":27,"total_tokens":60}}`, 27, 0, 33},
		{"Mistral, streamed", "openai", event, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":16,\"total_tokens\":50,\"completion_tokens\":34}}\r\n\r\ndata: [DONE]\r\n\r\n", 16, 0, 34},
		{"vLLM, with a sum in each event", "openai", event, "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\ndata: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3}}\n\n", 5, 0, 3},
		{"Anthropic messages", "anthropic", doc, `{"id":"msg_1","type":"message","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":2095,"cache_creation_input_tokens":51,"cache_read_input_tokens":700,"output_tokens":503}}`, 2146, 700, 503},
		{"Anthropic messages, streamed", "anthropic", event, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hello\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", 25, 4, 15},
		{"Gemini", "gemini", doc, `{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":40,"cachedContentTokenCount":8,"candidatesTokenCount":12,"thoughtsTokenCount":5,"totalTokenCount":57}}`, 32, 8, 17},
		{"Gemini, an array of parts", "gemini", doc, `[{"candidates":[{}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}
,
{"candidates":[{}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":30,"totalTokenCount":34}}]`, 4, 0, 30},
		{"Ollama", "ollama", lines, "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"done\":true,\"prompt_eval_count\":26,\"eval_count\":290}\n", 26, 0, 290},
	}
}

// However a response arrives in parts, what it says is found.
func TestReader_Responses(t *testing.T) {
	for _, r := range responses() {
		t.Run(r.name, func(t *testing.T) {
			check := func(how string, parts ...string) {
				reader := usage.NewReader(usage.Formats()[r.format], r.kind)
				for _, p := range parts {
					reader.Write([]byte(p))
				}
				got := reader.Report()
				if want := [...]int64{r.input, r.cached, r.output, 0}; !got.Known || got.Counts != want {
					t.Errorf("%s: %+v; want %v", how, got, want)
				}
			}
			check("at once", r.body)
			check("by byte", strings.Split(r.body, "")...)
			for i := range r.body {
				check(fmt.Sprint("cut at ", i), r.body[:i], r.body[i:])
			}
		})
	}
}

// What is no number of at least 0 at the path is not found, and what is found twice counts once, the greatest.
func TestReader_Lies(t *testing.T) {
	for body, want := range map[string]string{
		`{"usage":{"total_tokens":12}}`:                               "12 true",
		` {"usage" : { "total_tokens" : 12 , "x":1} } `:               "12 true",
		`{"usage":{"total_tokens":12.2}}`:                             "13 true",
		`{"usage":{"total_tokens":1e3}}`:                              "1000 true",
		`{"usage":{"total_tokens":1e400}}`:                            "2147483647 true",
		`{"usage":{"total_tokens":1e300}}`:                            "2147483647 true",
		`{"usage":{"total_tokens":0}}`:                                "0 true",
		`{"usage":{"total_tokens":"12"}}`:                             "0 false",
		`{"usage":{"total_tokens":-12}}`:                              "0 false",
		`{"usage":{"total_tokens":null}}`:                             "0 false",
		`{"usage":{"total_tokens":{"total_tokens":12}}}`:              "0 false",
		`{"usage":{"total_tokens":[12]}}`:                             "0 false",
		`{"usage":[{"total_tokens":12}]}`:                             "0 false",
		`{"usage":{"total_tokens":12,"total_tokens":3}}`:              "12 true",
		`{"usage":{"total_tokens":1111111111111111111111111111111}}`:  "2147483647 true",
		`{"usage":{"total_tokens":` + strings.Repeat("1", 999) + `}}`: "0 false", // longer than any number
		`{"usage/total_tokens":5}`:                                    "0 false",
		`{"usage\"total_tokens":5}`:                                   "0 false",
		`{"usage":{},"total_tokens":5}`:                               "0 false",
		`{"usage":{"total_tokens":12-34}}`:                            "0 false",
		`{"total_tokens":12,"a":{"usage":{"total_tokens":5}}}`:        "0 false",
		`{"us\u0061ge":{"total_tokens":5}}`:                           "0 false",
		`{"a":"\\","usage":{"total_tokens":5}}`:                       "5 true",
		`{"a":"{\"usage\":{\"total_tokens\":5}}"}`:                    "0 false",
		`{"usage":{"total_tokens":5`:                                  "0 false", // cut: it may go on
		`"usage" 5 12`:                                                "0 false",
		`]]}}{"usage":{"total_tokens":5}}`:                            "5 true",
		`{"usage":{"total_tokens` + strings.Repeat("x", 99) + `":5}}`: "0 false",
		strings.Repeat("[", 1000) + `{"usage":{"total_tokens":5}}`:    "5 true",
		strings.Repeat(`{"a":`, 9) + `{"usage":{"total_tokens":5}}`:   "0 false",
		``: "0 false",
	} {
		r := usage.NewReader(usage.AtPointer("/usage/total_tokens"), "application/json")
		r.Write([]byte(body))
		got := r.Report()
		if s := fmt.Sprint(got.Counts[usage.Total], got.Known); s != want {
			t.Errorf("%.80s: %s; want %s", body, s, want)
		}
	}
}

// What is of no event, or of another one, is not found; an event may have its document in several lines.
func TestReader_Events(t *testing.T) {
	const said = `{"usage":{"total_tokens":5}}`
	for _, end := range []string{"\n", "\r\n"} {
		for stream, want := range map[string]string{
			"data: " + said + "|":                                       "5 true",
			"data:" + said + "||":                                       "5 true",
			"data: {|data: \"usage\": {\"total_tokens\": 5}}||":         "5 true",
			"data: {\"a|data: " + said + "||":                           "0 false",
			"data: {\"a||data: " + said + "||":                          "5 true", // what an event has left open ends with it
			": " + said + "|event: " + said + "|id" + said + "||":       "0 false",
			"debug: " + said + "|dat: " + said + "|" + said + "||":      "0 false",
			"data: {\"a\":{}|data: ,\"usage\":{\"total_tokens\":5}}||":  "5 true",
			"dat|a: " + said + "||":                                     "0 false",
			"data: [DONE]||data: {\"usage\":{\"total_tokens\":null}}||": "0 false",
		} {
			text := strings.ReplaceAll(stream, "|", end)
			for cut := range len(text) {
				r := usage.NewReader(usage.AtPointer("/usage/total_tokens"), "Text/Event-Stream")
				r.Write([]byte(text[:cut]))
				r.Write([]byte(text[cut:]))
				if got := r.Report(); fmt.Sprint(got.Counts[usage.Total], got.Known) != want {
					t.Errorf("%q cut at %d: %+v; want %s", text, cut, got, want)
				}
			}
		}
	}
}

// A part of what was used says nothing of the whole; of what was read more cannot have come from a cache.
func TestReader_Parts(t *testing.T) {
	for _, c := range []struct {
		format, body, want string
		known              bool
	}{
		{"anthropic", `{"usage":{"cache_creation_input_tokens":700}}`, "input=700", false},
		{"anthropic", `{"message":{"usage":{"input_tokens":1,"cache_creation_input_tokens":700}}}`, "input=701", true},
		{"anthropic", `{"usage":{"cache_read_input_tokens":700}}`, "cached=700", false},
		{"gemini", `{"usageMetadata":{"thoughtsTokenCount":700}}`, "output=700", false},
		{"openai", `{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":9}}}`, "cached=5", true},
		{"openai", `{"response":{"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4}}}}`, "input=5 cached=4", true},
	} {
		r := usage.NewReader(usage.Formats()[c.format], "application/json")
		r.Write([]byte(c.body))
		if got := r.Report(); got.String() != c.want || got.Known != c.known {
			t.Errorf("%s: %s, %v; want %s, %v", c.body, got, got.Known, c.want, c.known)
		}
	}
}

// A pointer of as many and as long names as the configuration takes is found.
func TestReader_FindsTheDeepestPointer(t *testing.T) {
	name := strings.Repeat("n", 32)
	r := usage.NewReader(usage.AtPointer(strings.Repeat("/"+name, 8)), "application/json")
	r.Write([]byte(strings.Repeat(`{"`+name+`":`, 8) + strings.Repeat("0", 31) + "7" + strings.Repeat("}", 8)))
	if got := r.Report(); !got.Known || got.Counts[usage.Total] != 7 {
		t.Errorf("%+v; want 7", got)
	}
}

// Of any document the reader finds what a parser does.
func TestReader_FindsWhatAParserDoes(t *testing.T) {
	names := []string{"usage", "total_tokens", "a", "usage ", "ü", "\"", "total_tokens\\", ""}
	r := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	value = func(depth int) any {
		switch n := r.IntN(8); {
		case depth < 5 && n < 4:
			m := map[string]any{}
			for range r.IntN(4) {
				m[names[r.IntN(len(names))]] = value(depth + 1)
			}
			return m
		case depth < 5 && n == 4:
			return []any{value(depth + 1), value(depth + 1)}
		case n == 5:
			return names[r.IntN(len(names))] + "{\"usage\":{\"total_tokens\":7}}"
		case n == 6:
			return nil
		}
		return r.IntN(1000)
	}
	found := 0
	for range 20_000 {
		root := map[string]any{"a": value(1), "usage": value(1), "z": value(1)}
		if r.IntN(4) == 0 {
			root["usage"] = map[string]any{"total_tokens": value(2), "a": value(2)}
		}
		text, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		of, _ := root["usage"].(map[string]any)
		n, has := of["total_tokens"].(int)
		if has {
			want = int64(n)
			found++
		}
		reader := usage.NewReader(usage.AtPointer("/usage/total_tokens"), "application/json")
		for len(text) > 0 {
			cut := 1 + r.IntN(len(text))
			reader.Write(text[:cut])
			text = text[cut:]
		}
		if got := reader.Report(); got.Known != has || got.Counts[usage.Total] != want {
			t.Fatalf("%v: %+v; want %d, %v", root, got, want, has)
		}
	}
	if found < 500 {
		t.Errorf("%d documents have the number", found)
	}
}

func TestReport_Cost(t *testing.T) {
	r := usage.Report{Counts: [...]int64{100, 33, 7, 0}}
	for w, want := range map[usage.Weights]int64{{1, 1, 1}: 140, {1, 0.1, 4}: 132, {}: 0, {0, 0.1, 0}: 4, {1e300, 0, 0}: 1<<31 - 1, {-1, 0, 0}: 0} {
		if got := r.Cost(w); got != want {
			t.Errorf("%v: %d; want %d", w, got, want)
		}
	}
	ten := usage.Report{Counts: [...]int64{0, 10, 0, 5}}
	if got := ten.Cost(usage.Weights{Cached: 0.1}); got != 6 {
		t.Errorf("%d; want 6: 10 x 0.1 is 1", got)
	}
}

// Only a chat or a completion that streams is changed, and no value of it but that option. It streams if a server may take it
// so: one that ignores the case of names, as encoding/json does, or that takes a number for true, as pydantic does.
func TestEnsure(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[],"stream":true}`:                                                   `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		` { "stream" : true, "prompt" : "a<\u2028\u0061&" , "n":1.50e1} `:                 "{\"stream\":true,\"prompt\":\"a<\u2028a&\",\"stream_options\":{\"include_usage\":true},\"n\":1.50e1}",
		`{"messages":[],"stream":true,"stream_options":{}}`:                               `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"messages":[],"stream":true,"stream_options":null}`:                             `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"messages":[],"stream":true,"stream_options":{"include_obfuscation":false}}`:    `{"stream":true,"messages":[],"stream_options":{"include_usage":true,"include_obfuscation":false}}`,
		`{"messages":[],"stream":true,"stream_options":{"a":{},"include_usage":0,"b":1}}`: `{"stream":true,"messages":[],"stream_options":{"include_usage":true,"a":{},"b":1}}`,
		"{\"messages\":[],\"stream\":true,\"" + strings.Repeat("\u2028", 99) + "\":1}":    "{\"stream\":true,\"messages\":[],\"stream_options\":{\"include_usage\":true},\"" + strings.Repeat("\u2028", 99) + "\":1}",
		`{"messages":[],"stream":true,"Stream":false}`:                                    `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"Messages":[],"stream":false,"STREAM":true}`:                                    `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"messages":[],"stream":true,"Stream_Options":{"Include_Usage":false}}`:          `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"messages":[],"stream":1}`:                                                      `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`,
		`{"messages":[],"stream":"yes","n":1}`:                                            `{"stream":true,"messages":[],"stream_options":{"include_usage":true},"n":1}`,
		`{"messages":[],"stream":0,"Stream":null}`:                                        "",
		`{"messages":[],"stream":false}`:                                                  "",
		`{"messages":[]}`:                                                                 "",
		`{"input":"a","stream":true}`:                                                     "", // of the API of responses, which says it anyway
		`{"messages":[1],"stream":false,"a":1,"messages":[],"stream":true,"a":2}`:         `{"stream":true,"messages":[],"stream_options":{"include_usage":true},"a":1,"a":2}`,
		"\ufeff" + `{"messages":[],"stream":true}`:                                        `{"stream":true,"messages":[],"stream_options":{"include_usage":true}}`, // Python skips the mark
		"--b\r\nContent-Disposition: form-data; name=a\r\n":                               "",                                                                      // of an upload
		`null`: "",
	} {
		got, err := usage.Ensure([]byte(body))
		if string(got) != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", body, got, err, want)
		}
		if int64(len(got)-len(body)) > usage.MaxEnsured {
			t.Errorf("%s: %d bytes longer", body, len(got)-len(body))
		}
	}
}

// Some server reads a stream in each of these that would not say its usage.
func TestEnsure_WhatOthersMayRead(t *testing.T) {
	const stream = `{"messages":[],"stream":true}`
	utf16 := strings.Join(strings.Split(stream, ""), "\x00") + "\x00" // as json.loads of Python
	for _, body := range []string{
		utf16, stream + " x", stream + stream, `{"messages":[],"stream":true,"user":"\ud800"}`, `{"messages":[],"stream":true,"top_p":NaN}`,
		"{\"messages\":[],\"stream\":true,\"user\":\"\xff\"}", `{"messages":[],"stream":true,}`, `{/**/"messages":[],"stream":true}`,
		`{"messages":[],"stream":true,"stream_options":1}`, "\x1f\x8b", `{"messages":[],"stream":true`, "messages=&stream=true", `[]`,
	} {
		if got, err := usage.Ensure([]byte(body)); err == nil || got != nil {
			t.Errorf("%s: %s, %v; want an error", body, got, err)
		}
	}
}

// However many members a body has, none is held by itself: the body is in memory a few times, as is reserved for it.
func TestEnsure_Memory(t *testing.T) {
	body := []byte(`{"messages":[],"stream":true`)
	for i := range 50_000 {
		body = fmt.Appendf(body, `,"%d":0`, i)
	}
	body = append(body, '}')
	if n := rounds.Allocations(5, func() { usage.Ensure(body) }); n > 500 {
		t.Errorf("%v allocations for a body of 50,000 members", n)
	}
}

// A part of a stream costs no allocation.
func TestReader_DoesNotAllocate(t *testing.T) {
	for _, r := range responses() {
		reader, body := usage.NewReader(usage.Formats()[r.format], r.kind), []byte(r.body)
		if n := rounds.Allocations(20, func() { reader.Write(body) }); n > 0 {
			t.Errorf("%s: %v allocations", r.name, n)
		}
	}
}

// MB/s; a KiB takes 1 µs at 1,024 of them.
func BenchmarkReader(b *testing.B) {
	all := responses()[:2]
	long := all[0]
	long.name, long.body = "OpenAI chat of 4 KB", strings.Replace(long.body, "say ", strings.Repeat("word ", 800), 1)
	for _, r := range append(all, long) {
		b.Run(r.name, func(b *testing.B) {
			parts := []byte(r.body)
			if r.name == all[1].name { // 100 tokens, and one part for each event
				parts = bytes.Repeat([]byte(r.body[:strings.Index(r.body, "\n\n")+2]), 100)
			}
			b.SetBytes(int64(len(parts)))
			reader := usage.NewReader(usage.Formats()[r.format], r.kind)
			for b.Loop() {
				reader.Write(parts)
			}
		})
	}
}

func FuzzReader(f *testing.F) {
	for _, r := range responses() {
		f.Add([]byte(r.body), r.kind, 7)
	}
	f.Fuzz(func(t *testing.T, body []byte, kind string, cut int) {
		whole, parts := usage.NewReader(usage.Formats()["openai"], kind), usage.NewReader(usage.Formats()["openai"], kind)
		whole.Write(body)
		cut = max(0, min(cut, len(body)))
		parts.Write(body[:cut])
		parts.Write(body[cut:])
		if whole.Report() != parts.Report() {
			t.Errorf("%+v at once, %+v in parts", whole.Report(), parts.Report())
		}
	})
}

// Whatever the body is, it stays as it is, becomes one that asks, which does not change any more, or is refused.
func FuzzEnsure(f *testing.F) {
	f.Add([]byte(`{"messages":[],"stream":true,"stream_options":{"a":1}}`))
	f.Add([]byte(`{"messages":[],"stream_options":nul`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := usage.Ensure(body)
		if err != nil || got == nil {
			return
		}
		var asks struct {
			Options map[string]any `json:"stream_options"`
		}
		if again, err := usage.Ensure(got); err != nil || !bytes.Equal(again, got) || json.Unmarshal(bytes.ToValidUTF8(got, nil), &asks) != nil || asks.Options["include_usage"] != true {
			t.Errorf("%q became %q, and then %q", body, got, again)
		}
	})
}
