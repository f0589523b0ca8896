// Package models is a server that speaks as language models do: OpenAI's chat, responses and embeddings, Anthropic's
// messages, Gemini's generateContent and Ollama's chat, whole and streamed, after their documentation. What it answers is of
// no use, but it counts: a prompt has a token for each 4 bytes of the body, and an answer has as many as it may have.
package models

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// A Server is such a server. The name of a model says how it misbehaves: cut-... ends its response in the middle, mute-...
// says no usage, and lie-negative-..., lie-text-... and lie-huge-... say one that is none.
type Server struct {
	Used atomic.Int64 // tokens of all responses, of prompts too
	// Wait is called before a response begins, unless it is nil.
	Wait func()
	// Between is called before each event of a stream but the first, unless it is nil.
	Between func()
}

// A request has the fields of all APIs.
type request struct {
	Model               string
	Stream              bool
	MaxTokens           int64 `json:"max_tokens"`
	MaxCompletionTokens int64 `json:"max_completion_tokens"`
	MaxOutputTokens     int64 `json:"max_output_tokens"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	GenerationConfig struct{ MaxOutputTokens int64 }
	Options          struct {
		NumPredict int64 `json:"num_predict"`
	}

	path   string
	input  int64
	output int64
}

// cached is how much of each prompt comes from the cache.
const cached = 2

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	q := request{path: r.URL.Path, input: int64(len(body)+3) / 4}
	if err != nil || json.Unmarshal(body, &q) != nil {
		http.Error(w, `{"error":{"message":"no JSON"}}`, http.StatusBadRequest)
		return
	}
	if name, found := strings.CutPrefix(q.path, "/v1beta/models/"); found {
		q.Model, q.path, _ = strings.Cut(name, ":")
	}
	q.output = max(q.MaxTokens, q.MaxCompletionTokens, q.MaxOutputTokens, q.GenerationConfig.MaxOutputTokens, q.Options.NumPredict)
	if q.output == 0 {
		q.output = 20
	}
	if s.Wait != nil {
		s.Wait()
	}
	s.Used.Add(q.input + q.output)
	a := answer{q: &q, w: w, between: s.Between}
	switch q.path {
	case "/v1/chat/completions":
		a.chat()
	case "/v1/responses":
		a.responses()
	case "/v1/embeddings":
		a.q.output = 0
		a.whole(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.0023,-0.0093]}],"model":%q%s}`, q.Model, a.said(`,"usage":{"prompt_tokens":%s,"total_tokens":%s}`, a.n(q.input), a.n(q.input)))
	case "/v1/messages":
		a.messages()
	case "generateContent", "streamGenerateContent":
		a.gemini(r.URL.Query().Get("alt"))
	case "/api/chat":
		a.ollama()
	default:
		http.NotFound(w, r)
	}
}

// An answer is the response to a request.
type answer struct {
	q       *request
	w       http.ResponseWriter
	between func()
	begun   bool
}

// n writes a number of the usage as the model says it.
func (a *answer) n(number int64) string {
	switch model := a.q.Model; {
	case strings.HasPrefix(model, "lie-negative"):
		return fmt.Sprint(-number)
	case strings.HasPrefix(model, "lie-text"):
		return fmt.Sprintf("%q", fmt.Sprint(number))
	case strings.HasPrefix(model, "lie-huge"):
		return "1e300"
	}
	return fmt.Sprint(number)
}

// said returns what has the usage, or nothing.
func (a *answer) said(format string, args ...any) string {
	if strings.HasPrefix(a.q.Model, "mute") {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// whole sends a document.
func (a *answer) whole(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.w.Header().Set("Content-Type", "application/json")
	if strings.HasPrefix(a.q.Model, "cut") {
		a.send(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	}
	a.send(text)
}

// send sends a part.
func (a *answer) send(text string) {
	if a.begun && a.between != nil {
		a.between()
	}
	a.begun = true
	_, _ = io.WriteString(a.w, text) // the client may have left
	a.w.(http.Flusher).Flush()
}

// event sends an event, named if the API names them.
func (a *answer) event(name, format string, args ...any) {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	text := "data: " + fmt.Sprintf(format, args...) + "\n\n"
	if name != "" {
		text = "event: " + name + "\n" + text
	}
	a.send(text)
}

// cut ends a stream whose model does that.
func (a *answer) cut() {
	if strings.HasPrefix(a.q.Model, "cut") {
		panic(http.ErrAbortHandler)
	}
}

func (a *answer) openAI(names string) string {
	q, in, out := a.q, "prompt_tokens", "completion_tokens"
	if names == "responses" {
		in, out = "input_tokens", "output_tokens"
	}
	return fmt.Sprintf(`{%q:%s,%q:{"cached_tokens":%d},%q:%s,%q:{"reasoning_tokens":0},"total_tokens":%s}`, in, a.n(q.input), in+"_details", cached, out, a.n(q.output), out+"_details", a.n(q.input+q.output))
}

// chat is https://platform.openai.com/docs/api-reference/chat; streams say the usage if they are asked.
func (a *answer) chat() {
	q := a.q
	if !q.Stream {
		a.whole(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"{\"usage\":{\"prompt_tokens\":1}}"},"finish_reason":"stop"}]%s}`, q.Model, a.said(`,"usage":%s`, a.openAI("chat")))
		return
	}
	const chunk = `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":%q,"choices":[%s]%s}`
	usage := ""
	if q.StreamOptions.IncludeUsage {
		usage = `,"usage":null`
	}
	for range q.output {
		a.event("", chunk, q.Model, `{"index":0,"delta":{"role":"assistant","content":"word "},"finish_reason":null}`, usage)
	}
	a.cut()
	a.event("", chunk, q.Model, `{"index":0,"delta":{},"finish_reason":"stop"}`, usage)
	if said := a.said(`,"usage":%s`, a.openAI("chat")); said != "" && q.StreamOptions.IncludeUsage {
		a.event("", chunk, q.Model, "", said)
	}
	a.event("", "[DONE]")
}

// responses is https://platform.openai.com/docs/api-reference/responses; the last event of a stream has the usage.
func (a *answer) responses() {
	q := a.q
	response := func(status, usage string) string {
		return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1700000000,"status":%q,"model":%q,"output":[{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"words","annotations":[]}]}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":%s}`, status, q.Model, usage)
	}
	usage := a.said("%s", a.openAI("responses"))
	if usage == "" {
		usage = "null"
	}
	if !q.Stream {
		a.whole("%s", response("completed", usage))
		return
	}
	a.event("response.created", `{"type":"response.created","sequence_number":0,"response":%s}`, response("in_progress", "null"))
	for i := range q.output {
		a.event("response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":%d,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"word ","logprobs":[]}`, i+1)
	}
	a.cut()
	a.event("response.completed", `{"type":"response.completed","sequence_number":%d,"response":%s}`, q.output+1, response("completed", usage))
}

// messages is https://docs.anthropic.com/en/api/messages: message_start has the input, and message_delta the output so far.
func (a *answer) messages() {
	q := a.q
	usage := a.said(`"input_tokens":%s,"cache_creation_input_tokens":1,"cache_read_input_tokens":%d,`, a.n(q.input-cached-1), cached)
	if !q.Stream {
		a.whole(`{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":"words"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{%s%s}}`, q.Model, usage, a.said(`"output_tokens":%s`, a.n(q.output)))
		return
	}
	a.event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[],"stop_reason":null,"stop_sequence":null,"usage":{%s%s}}}`, q.Model, usage, a.said(`"output_tokens":%s`, a.n(1)))
	a.event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	a.event("ping", `{"type": "ping"}`)
	for range q.output {
		a.event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}`)
	}
	a.cut()
	a.event("content_block_stop", `{"type":"content_block_stop","index":0}`)
	a.event("message_delta", `{"type":"message_delta","delta":{"stop_reason":null},"usage":{%s}}`, a.said(`"output_tokens":%s`, a.n(q.output/2)))
	a.event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{%s}}`, a.said(`"output_tokens":%s`, a.n(q.output)))
	a.event("message_stop", `{"type":"message_stop"}`)
}

// gemini is https://ai.google.dev/api/generate-content: a stream is an array of parts, or events.
func (a *answer) gemini(alt string) {
	q := a.q
	part := func(output int64) string {
		return fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":"words"}],"role":"model"},"index":0}]%s,"modelVersion":%q}`, a.said(`,"usageMetadata":{"promptTokenCount":%s,"cachedContentTokenCount":%d,"candidatesTokenCount":%s,"thoughtsTokenCount":1,"totalTokenCount":%s}`, a.n(q.input), cached, a.n(output-1), a.n(q.input+output)), q.Model)
	}
	switch {
	case q.path == "generateContent":
		a.whole("%s", part(q.output))
	case alt == "sse":
		a.event("", "%s", part(q.output/2))
		a.cut()
		a.event("", "%s", part(q.output))
	default:
		a.w.Header().Set("Content-Type", "application/json")
		a.send("[" + part(q.output/2) + "\n,\n")
		a.cut()
		a.send(part(q.output) + "]")
	}
}

// ollama is https://github.com/ollama/ollama/blob/main/docs/api.md: a document a line, of which the last has the counts. It
// streams unless it is told not to; here it does if it is told to.
func (a *answer) ollama() {
	q := a.q
	done := fmt.Sprintf(`{"model":%q,"created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true%s}`, q.Model, a.said(`,"prompt_eval_count":%s,"eval_count":%s`, a.n(q.input), a.n(q.output)))
	if !q.Stream {
		a.whole("%s", done)
		return
	}
	a.w.Header().Set("Content-Type", "application/x-ndjson")
	for range q.output {
		a.send(fmt.Sprintf(`{"model":%q,"message":{"role":"assistant","content":"word "},"done":false}`+"\n", q.Model))
	}
	a.cut()
	a.send(done + "\n")
}
