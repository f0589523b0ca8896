// Package usage reads what a response says that its request has used, such as tokens of a language model, while the
// response passes: JSON, server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) and one JSON
// document a line. It holds nothing back, keeps no copy, and does not allocate for valid numbers; a KiB takes
// less than 1 µs. Lines of events end in LF or CRLF.
//
// A number is found by the path of names to it. What is in a string, such as the text that a model has written, is none. Of
// several numbers at one path the greatest counts: streams of Anthropic and vLLM repeat a sum that grows.
package usage

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Counter is something that a response counts.
type Counter uint8

// The counters.
const (
	Input  Counter = iota // what was read, such as the tokens of a prompt
	Cached                // the part of it that came from a cache
	Output                // what was written
	Total                 // all together, as the response says it
	numCounters

	moreInput  = numCounters + Input // a part of Input beside what the others have
	moreOutput = numCounters + Output
)

// A Format says where responses have their counters.
type Format struct {
	marker      []byte             // each path has a name that contains it
	paths       map[string]Counter // by the names that lead to it, each behind a quotation mark, which no name has
	cachedApart bool               // Input does not contain Cached
}

// Formats returns the formats that have names. OpenAI's is also that of Azure, Mistral, vLLM and of Ollama's /v1: of chat
// completions, embeddings and responses, whose streams have it in an event. A stream of Anthropic has the input in
// message_start, and the output in message_delta. Ollama's is the API of its own.
func Formats() map[string]*Format {
	tokens := []byte("_tokens")
	return map[string]*Format{
		"openai": {marker: tokens, paths: map[string]Counter{
			`"usage"prompt_tokens`: Input, `"usage"prompt_tokens_details"cached_tokens`: Cached, `"usage"completion_tokens`: Output,
			`"usage"input_tokens`: Input, `"usage"input_tokens_details"cached_tokens`: Cached, `"usage"output_tokens`: Output,
			`"response"usage"input_tokens`: Input, `"response"usage"input_tokens_details"cached_tokens`: Cached, `"response"usage"output_tokens`: Output,
		}},
		"anthropic": {marker: tokens, cachedApart: true, paths: map[string]Counter{
			`"usage"input_tokens`: Input, `"usage"cache_creation_input_tokens`: moreInput, `"usage"cache_read_input_tokens`: Cached, `"usage"output_tokens`: Output,
			`"message"usage"input_tokens`: Input, `"message"usage"cache_creation_input_tokens`: moreInput, `"message"usage"cache_read_input_tokens`: Cached, `"message"usage"output_tokens`: Output,
		}},
		"gemini": {marker: []byte("TokenCount"), paths: map[string]Counter{
			`"usageMetadata"promptTokenCount`: Input, `"usageMetadata"cachedContentTokenCount`: Cached,
			`"usageMetadata"candidatesTokenCount`: Output, `"usageMetadata"thoughtsTokenCount`: moreOutput,
		}},
		"ollama": {marker: []byte("eval_count"), paths: map[string]Counter{`"prompt_eval_count`: Input, `"eval_count`: Output}},
	}
}

// AtPointer returns the format of responses that have one number, at a JSON pointer (RFC 6901) without escapes and
// indexes, of at most 8 names of at most 32 bytes.
func AtPointer(pointer string) *Format {
	return &Format{marker: []byte(pointer[strings.LastIndexByte(pointer, '/')+1:]), paths: map[string]Counter{strings.ReplaceAll(pointer, "/", `"`): Total}}
}

// Weights are what each of the counters costs.
type Weights struct{ Input, Cached, Output float64 }

// A Report is what a response has said. The zero Report says nothing.
type Report struct {
	Counts [numCounters]int64
	Known  bool
}

// Cost returns what was used by weights, rounded up: at most MaxInt32, at least 0.
func (r Report) Cost(w Weights) int64 {
	cost := float64(r.Counts[Total]) + float64(r.Counts[Input])*w.Input + float64(r.Counts[Cached])*w.Cached + float64(r.Counts[Output])*w.Output
	return int64(math.Ceil(min(max(cost, 0)-1e-9, math.MaxInt32)))
}

// Of returns the report that has n of c.
func (c Counter) Of(n int64) Report {
	r := Report{Known: true}
	r.Counts[c] = n
	return r
}

// String returns the counters that are not 0, for logs: input=19 output=10.
func (r Report) String() (text string) {
	for i, name := range [...]string{"input", "cached", "output", "total"} {
		if n := r.Counts[i]; n > 0 {
			text += " " + name + "=" + strconv.FormatInt(n, 10)
		}
	}
	return strings.TrimPrefix(text, " ")
}

// Number returns a number in text, rounded up, and whether it is one, of at least 0.
func Number(text string) (n int64, valid bool) {
	f, err := strconv.ParseFloat(text, 64) // which takes inf and 0x1p9 too
	return int64(math.Ceil(min(max(f, 0), math.MaxInt32))), f >= 0 && (err == nil || f > math.MaxInt32) && strings.Trim(text, "0123456789+-.eE") == ""
}

// A Reader reads the body of one response.
type Reader struct {
	format  *Format
	isEvent bool            // the body is a stream of events
	field   [len(data)]byte // of a stream: what the line has begun with
	begun   int             // the length of that
	scanner
	greatest [2 * numCounters]int64 // of each counter
	has      uint16                 // the counters that were found
}

// data begins the lines of a stream that have some; others tell something else.
const data = "data:"

// NewReader returns a reader of a body with this Content-Type.
func NewReader(f *Format, contentType string) *Reader {
	return &Reader{format: f, isEvent: strings.HasPrefix(strings.ToLower(contentType), "text/event-stream")}
}

// Write reads the next part of the body.
func (r *Reader) Write(p []byte) {
	if !r.isEvent {
		r.read(p)
		return
	}
	for len(p) > 0 {
		line, rest, ends := bytes.Cut(p, []byte("\n"))
		line, p = bytes.TrimSuffix(line, []byte("\r")), rest
		n := copy(r.field[r.begun:], line)
		r.begun, line = r.begun+n, line[n:]
		switch {
		case ends && r.begun == 0: // the end of an event
			r.scanner = scanner{}
		case string(r.field[:r.begun]) == data && (!ends || r.isWithin() || bytes.Count(line, []byte("{")) > bytes.Count(line, []byte("}")) || bytes.Contains(line, r.format.marker)):
			r.read(line) // what opens no document, and has no marker, has nothing to be found
		}
		if ends {
			r.begun = 0
		}
	}
}

// Report returns what the body has said until now.
func (r *Reader) Report() Report {
	all := Report{Known: r.has&^(1<<Cached)&(1<<numCounters-1) != 0} // a part alone says nothing
	for c := range all.Counts {
		all.Counts[c] = r.greatest[c] + r.greatest[int(numCounters)+c]
	}
	if !r.format.cachedApart {
		all.Counts[Cached] = min(all.Counts[Cached], all.Counts[Input])
		all.Counts[Input] -= all.Counts[Cached]
	}
	return all
}

// MaxEnsured is by how many bytes Ensure makes a body longer, at most.
const MaxEnsured = int64(len(`"stream":true,"stream_options":{"include_usage":true},`))

// A truth is true if one of the values of its name is, as lenient servers read them: another than false, null and 0.
type truth bool

// UnmarshalJSON implements json.Unmarshaler.
func (t *truth) UnmarshalJSON(b []byte) error {
	*t = *t || string(b) != "false" && string(b) != "null" && string(b) != "0"
	return nil
}

// Ensure returns a request of OpenAI's chat or completions API that streams, also if only for servers that ignore the case of
// names, with stream_options.include_usage set, so that the last event has the usage; written anew, it has no spaces. For other
// requests it returns nil. An error is that of a body that is neither such JSON nor a multipart form: some servers read more
// than this, such as UTF-16, half a surrogate pair, NaN, data behind the JSON, or options that are no object.
func Ensure(body []byte) (ensured []byte, err error) {
	var r struct {
		Stream   truth          `json:"stream"`
		Messages jsontext.Value `json:"messages,omitzero"`
		Prompt   jsontext.Value `json:"prompt,omitzero"`
		Options  struct {
			Usage jsontext.Value `json:"include_usage"`
			Rest  jsontext.Value `json:",embed"`
		} `json:"stream_options"`
		Rest jsontext.Value `json:",embed"`
	}
	// To find names that are there twice would take twenty times the memory of the body.
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), json.MatchCaseInsensitiveNames(true))
	if err = json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &r, lenient); bytes.HasPrefix(body, []byte("--")) {
		err = nil // a multipart form
	}
	if err != nil || !bool(r.Stream) || r.Messages == nil && r.Prompt == nil {
		return nil, err
	}
	r.Options.Usage = jsontext.Value("true")
	return json.Marshal(&r, lenient)
}

const maxNames, maxDigits = 8, 32 // of a path and of a number; a longer number is not counted

// A scanner follows the names of members in JSON documents, one after the other; arrays around a document count as nothing.
// It does not check that a document is well formed: what follows a fault is not found.
type scanner struct {
	path    [maxNames*33 + maxDigits]byte // the names that lead to the next value, as in Format.paths; behind it a number
	length  int                           // of the path and the number; beyond the size of path if they are too long
	ends    [maxNames]int                 // of the paths of the objects around
	live    int                           // their number
	ignored int                           // how many others are open within, with arrays
	wants   bool                          // the next string is the name of a member
	inText  bool                          // a string is being read
	inName  bool                          // and it is the name of a member
	escaped bool                          // the next character of the string is
	number  int                           // where in path the number begins that is being read; 0: none is
}

// isWithin reports whether a document has begun.
func (s *scanner) isWithin() bool { return s.live > 0 || s.ignored > 0 || s.inText }

// read reads a part of a document.
func (r *Reader) read(p []byte) {
	for i := 0; i < len(p); i++ {
		if r.inText {
			i += r.inString(p[i:])
			continue
		}
		for r.ignored > 0 && i < len(p)-1 && p[i] != '"' && p[i]|0x20 != '{' && p[i]|0x20 != '}' {
			i++ // [ and ] differ from { and } in that bit
		}
		c := p[i]
		isNumber := c >= '0' && c <= '9' || c == '-'
		if r.number > 0 {
			if isNumber || c == '.' || c == '+' || c == 'e' || c == 'E' {
				r.keep(p[i : i+1])
				continue
			}
			r.endNumber()
		}
		switch {
		case c == '"':
			r.inText, r.inName = true, r.wants
			if r.wants {
				r.wants, r.length = false, r.ends[r.live-1]
				r.keep(p[i : i+1])
			}
		case c|0x20 == '{':
			r.enter(c)
		case c|0x20 == '}':
			r.leave()
		case r.ignored > 0:
		case c == ',':
			r.wants = r.live > 0
		case isNumber && !r.wants && r.length < len(r.path):
			if _, found := r.format.paths[string(r.path[:r.length])]; found {
				r.number = r.length
				r.keep(p[i : i+1])
			}
		}
	}
}

// inString reads p to the end of the string, and returns the index of the last byte that it has read. A name with an escape
// keeps its backslash, which no name of a path has.
func (s *scanner) inString(p []byte) int {
	for from := 0; from < len(p); {
		part := p[from:]
		end := bytes.IndexByte(part, '"')
		if end >= 0 {
			part = part[:end]
		}
		if s.inName {
			s.keep(part)
		}
		escapes := len(part) - len(bytes.TrimRight(part, `\`))
		isOdd := escapes%2 == 1
		s.escaped = isOdd != (s.escaped && escapes == len(part))
		if end < 0 {
			break
		}
		if from += end + 1; !s.escaped {
			s.inText = false
			return from - 1
		}
		s.escaped = false
	}
	return len(p) - 1
}

// keep adds a part to the path or the number.
func (s *scanner) keep(part []byte) {
	if s.length+len(part) <= len(s.path) {
		copy(s.path[s.length:], part)
	}
	s.length += len(part)
}

// endNumber ends the number, which counts if it is valid.
func (r *Reader) endNumber() {
	if r.length <= len(r.path) && r.length-r.number <= maxDigits {
		if n, valid := Number(string(r.path[r.number:r.length])); valid {
			of := r.format.paths[string(r.path[:r.number])]
			r.greatest[of], r.has = max(r.greatest[of], n), r.has|1<<of
		}
	}
	r.length, r.number = r.number, 0
}

// enter begins an object or an array, by its bracket.
func (s *scanner) enter(bracket byte) {
	switch {
	case s.ignored == 0 && s.live < maxNames && s.length <= len(s.path) && bracket == '{':
		s.ends[s.live] = s.length
		s.live++
		s.wants = true
	case s.live > 0:
		s.ignored++
	}
}

// leave ends one.
func (s *scanner) leave() {
	switch {
	case s.ignored > 0:
		s.ignored--
	case s.live > 0:
		s.live--
		s.wants, s.length = false, s.ends[s.live]
	}
}
