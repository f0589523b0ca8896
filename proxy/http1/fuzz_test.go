package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

// A parsed message is what one of two readers has made of the same bytes.
type parsed struct {
	start   string
	fields  []string
	body    string
	trailer []string
	rest    string
}

// filling feeds a body from its input, without time limits.
type filling struct{}

func (filling) fillBody(b *Body) error {
	return b.fill()
}

// bodyOf reads a body behind a head of n bytes.
func bodyOf(raw []byte, n int, f Framing) (body, rest string, trailer []string, err error) {
	from := bytes.NewReader(raw)
	in := input{from: from, pool: new(bufferPool)}
	in.ensureBuffer()
	for in.w < n && err == nil {
		in.growHead(len(raw))
		err = in.fill()
	}
	in.retainHead(n)
	var b Body
	b.open(&in, filling{}, f, limits())
	read, err := io.ReadAll(&b)
	behind, _ := io.ReadAll(from)
	return string(read), string(in.unread()) + string(behind), sorted(&b.trailer), err
}

// sorted are the fields that both readers keep, in one spelling and order.
func sorted(f *Fields) []string {
	var lines []string
	for line := range f.All() {
		switch line.ID {
		case Host, ContentLength, TransferEncoding, Trailer:
			continue
		}
		lines = append(lines, textproto.CanonicalMIMEHeaderKey(line.Name)+": "+line.Value)
	}
	slices.SortStableFunc(lines, byName)
	return lines
}

func byName(a, b string) int {
	a, _, _ = strings.Cut(a, ":")
	b, _, _ = strings.Cut(b, ":")
	return strings.Compare(a, b)
}

func sortedHeader(h http.Header) []string {
	var lines []string
	for name, values := range h {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	slices.SortStableFunc(lines, byName)
	return lines
}

func (p parsed) equal(q parsed) bool {
	return p.start == q.start && slices.Equal(p.fields, q.fields) && p.body == q.body && p.rest == q.rest
}

// mayDiffer lists where net/http is stricter or does something else, so that it
// cannot be asked:
//   - targets that net/url refuses, as half an escape in a path: RFC 9112 section 3
//     has them sent on as they are
//   - Pragma, for which it makes up a Cache-Control (RFC 9111 section 5.4)
//   - Trailer, whose names it checks; here the trailer fields themselves are
//     (RFC 9110 section 6.5.1)
//   - trailer sections beyond 4 KiB
//   - the kind of an upgraded connection's body, which is none here
func mayDiffer(err error, f *Fields) bool {
	if _, pragma := f.Lookup("pragma"); pragma || f.Has(Trailer) {
		return true
	}
	return err != nil && (strings.Contains(err.Error(), "parse \"") || strings.Contains(err.Error(), "suspiciously long trailer"))
}

func requestSeeds() []string {
	return []string{
		"GET /x?y HTTP/1.1|Host: a||", "POST / HTTP/1.1|Host: a|Content-Length: 5||hello!", "HEAD / HTTP/1.0||GET", "OPTIONS * HTTP/1.1|Host: a||",
		"POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||5;x=y|hello|0|A: b||GET /", "GET http://b:80/x HTTP/1.1|Host: a||x",
		"PUT /%zz HTTP/1.1|Host: [::1]:8|Connection: close, x|X:  a\tb ||", "GET / HTTP/1.1|Host : a||", "GET / HTTP/1.1|Host: a| x||",
		"POST / HTTP/1.1|Host: a|Content-Length: 3|Transfer-Encoding: chunked||", "POST / HTTP/1.1|Host: a|Content-Length: 010||0123456789",
		"POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||1\n2", "POST / HTTP/1.1|Host: a|Expect: 100-continue|Content-Length: 1||x",
	}
}

// FuzzRequest holds the parser to net/http, which is laxer: what is accepted
// here, it reads as the same message and ends at the same byte. What is written
// of it is read as the same message again.
func FuzzRequest(f *testing.F) {
	for _, s := range requestSeeds() {
		f.Add([]byte(lined(s)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r Request
		n, err := r.Parse(raw, limits())
		if n == 0 || err != nil {
			return
		}
		body, rest, trailer, err := bodyOf(raw, n, r.Framing)
		if err != nil {
			return
		}
		ours := parsed{r.Method() + " " + r.Target() + " " + r.Host() + " " + r.Proto(), sorted(&r.Fields), body, trailer, rest}
		theirs, err := netRequest(raw)
		if mayDiffer(err, &r.Fields) {
			return
		}
		if err != nil || !ours.equal(theirs) {
			t.Errorf("%q: got %+v; net/http has %+v, %v", raw, ours, theirs, err)
		}
		again(t, &r, ours)
	})
}

func netRequest(raw []byte) (parsed, error) {
	from := bytes.NewReader(raw)
	buffered := bufio.NewReader(from)
	r, err := http.ReadRequest(buffered)
	if err != nil {
		return parsed{}, err
	}
	body, err := io.ReadAll(r.Body)
	rest, _ := io.ReadAll(io.MultiReader(buffered))
	return parsed{r.Method + " " + r.RequestURI + " " + r.Host + " " + r.Proto, sortedHeader(r.Header), string(body), nil, string(rest)}, err
}

// again writes the message as it is sent on, and reads it again.
func again(t *testing.T, r *Request, was parsed) {
	t.Helper()
	host := r.Host()
	if host == "" {
		host = "none"
	}
	var h Head
	query, asked := r.RawQuery()
	mark := ""
	if asked {
		mark = "?"
	}
	h.startRequest(r.Method(), r.Path(), mark, query)
	h.add("Host", host)
	h.hasHost = true
	framing := r.Framing
	if !r.Expects() {
		r.Fields.DropKnown(Expect) // as Call.Begin does
	}
	r.Fields.StripHopByHop()
	stripped := sorted(&r.Fields)
	h.AddFields(&r.Fields)
	h.addFraming(outgoingFraming(message{minor: 1}, framing))
	h.end()
	out := h.buf
	if framing.Kind == Chunked {
		out = append(appendChunk(out, []byte(was.body)), "0\r\n\r\n"...)
	} else {
		out = append(out, was.body...)
	}
	var second Request
	n, err := second.Parse(out, limits())
	if errors.Is(err, ErrTooLarge) {
		return // blanks around a colon have been added
	}
	if h.err != nil || err != nil || n == 0 {
		t.Fatalf("%q was written as %q: %v, %v", was.start, out, h.err, err)
	}
	body, rest, _, err := bodyOf(out, n, second.Framing)
	if err != nil || body != was.body || rest != "" || second.Host() != host || second.Path() != r.Path() || !slices.Equal(sorted(&second.Fields), stripped) {
		t.Errorf("%q was written as %q, which is another message: %v", was.start, out, err)
	}
}

// FuzzResponse is FuzzRequest for answers.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK|Content-Length: 2||okmore", "HTTP/1.0 200||all", "HTTP/1.1 204 No|Content-Length: 2||ok", "HTTP/1.1 304 Not Modified|Content-Length: 2||",
		"HTTP/1.1 200 OK|Transfer-Encoding: chunked||2|ok|0|A: b||x", "HTTP/1.1 103 Hints|A: b||", "HTTP/1.1 200 OK|X : y||", "HTTP/1.1 2000 OK||",
		"HTTP/1.1 200 OK|Content-Length: 2|Content-Length: 2||ok", "HTTP/1.0 200 OK|Transfer-Encoding: chunked||0||",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			f.Add(method, []byte(lined(s)))
		}
	}
	f.Fuzz(func(t *testing.T, method string, raw []byte) {
		var r Response
		n, err := r.Parse(raw, method, limits())
		if n == 0 || err != nil {
			return
		}
		body, rest, trailer, err := bodyOf(raw, n, r.Framing)
		if err != nil {
			return
		}
		ours := parsed{"", sorted(&r.Fields), body, trailer, rest}
		theirs, status, err := netResponse(raw, method)
		if mayDiffer(err, &r.Fields) {
			return
		}
		if err != nil || status != r.Status || !ours.equal(theirs) {
			t.Errorf("%s %q: got %d %+v; net/http has %d %+v, %v", method, raw, r.Status, ours, status, theirs, err)
		}
		if r.Status != 101 {
			answeredAgain(t, &r, method, ours)
		}
	})
}

// answeredAgain writes the answer as a client that speaks HTTP/1.1 gets it, and reads it
// again.
func answeredAgain(t *testing.T, r *Response, method string, was parsed) {
	t.Helper()
	var h Head
	h.startResponse(r.Status)
	framing := r.Framing
	r.Fields.StripHopByHop()
	stripped := sorted(&r.Fields)
	h.AddFields(&r.Fields)
	to := outgoingFraming(message{minor: 1, method: method, status: r.Status}, framing)
	h.addFraming(to)
	h.end()
	out := h.buf
	switch to.Kind {
	case Chunked:
		out = append(appendChunk(out, []byte(was.body)), "0\r\n\r\n"...)
	case FixedLength:
		out = append(out, was.body...)
	}
	var second Response
	n, err := second.Parse(out, method, limits())
	if errors.Is(err, ErrTooLarge) {
		return // blanks around a colon, and a reason, have been added
	}
	if h.err != nil || err != nil || n == 0 {
		t.Fatalf("%d was written as %q: %v, %v", r.Status, out, h.err, err)
	}
	body, rest, _, err := bodyOf(out, n, second.Framing)
	if err != nil || body != was.body || rest != "" || second.Status != r.Status || second.Framing != to || !slices.Equal(sorted(&second.Fields), stripped) {
		t.Errorf("%d was written as %q, which is another answer: %v, %v", r.Status, out, second.Framing, err)
	}
}

func netResponse(raw []byte, method string) (parsed, int, error) {
	from := bytes.NewReader(raw)
	buffered := bufio.NewReader(from)
	r, err := http.ReadResponse(buffered, &http.Request{Method: method})
	if err != nil {
		return parsed{}, 0, err
	}
	body, err := io.ReadAll(r.Body)
	rest, _ := io.ReadAll(buffered)
	return parsed{"", sortedHeader(r.Header), string(body), nil, string(rest)}, r.StatusCode, err
}

// FuzzChunked splits a chunked body anywhere and wants the same of it.
func FuzzChunked(f *testing.F) {
	f.Add([]byte(lined("5;x|hello|0||")), 3)
	f.Add([]byte(lined("a|0123456789|00|A: b||x")), 7)
	f.Fuzz(func(t *testing.T, raw []byte, at int) {
		whole, rest, err := chunksAt(string(raw), len(raw))
		if at < 0 || at > len(raw) {
			at = -1
		}
		data, left, again := chunksAt(string(raw), at)
		if data != whole || left != rest || !errors.Is(again, err) {
			t.Errorf("%q split at %d: got %q, %q, %v; want %q, %q, %v", raw, at, data, left, again, whole, rest, err)
		}
	})
}

// lined makes CRLF of each bar, so that a message fits on a line.
func lined(s string) string { return strings.ReplaceAll(s, "|", "\r\n") }

func limits() *Limits {
	l := Limits{}.forRequests()
	return &l
}

// requestAt parses raw in two calls, or byte by byte if at is -1. rest is what
// follows the head.
func requestAt(raw string, at int) (r *Request, rest string, err error) {
	r = new(Request)
	rest, err = stepwise(raw, at, func(b []byte) (int, error) { return r.Parse(b, limits()) })
	return r, rest, err
}

// stepwise parses raw in two calls, or byte by byte if at is -1.
func stepwise(raw string, at int, parse func([]byte) (int, error)) (rest string, err error) {
	b := []byte(raw)
	n, have, step := 0, at, len(raw)-at
	if at < 0 {
		have, step = 0, 1
	}
	for ; have <= len(raw) && n == 0 && err == nil; have += max(step, 1) {
		n, err = parse(b[:have:have])
	}
	return raw[n:], err
}

// offsets are those at which raw is split: all of the first 300 and some of the others,
// and byte by byte.
func offsets(raw string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := -1; at < len(raw); at += 1 + max(at, 0)/300*len(raw)/50 {
			if !yield(at) {
				return
			}
		}
	}
}

// requestSplit parses raw split at each offset, and checks that this makes no
// difference.
func requestSplit(t *testing.T, raw string) (*Request, string, error) {
	t.Helper()
	whole, rest, err := requestAt(raw, len(raw))
	for at := range offsets(raw) {
		r, left, again := requestAt(raw, at)
		if !errors.Is(again, err) || again == nil && (left != rest || seen(r) != seen(whole)) {
			t.Fatalf("%q split at %d: got %v, %q, %s; want %v, %q, %s", raw, at, again, left, seen(r), err, rest, seen(whole))
		}
	}
	return whole, rest, err
}

// seen is what a request says, as text.
func seen(r *Request) string {
	query, asked := r.RawQuery()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s host=%s path=%s query=%t%s %d %v close=%t", r.Method(), r.Target(), r.Host(), r.Path(), asked, query, r.Minor, r.Framing, r.Close)
	for f := range r.Fields.All() {
		fmt.Fprintf(&b, " [%s: %s]", f.Name, f.Value)
	}
	return b.String()
}

// responseSplit is requestSplit for an answer.
func responseSplit(t *testing.T, raw, method string) (*Response, string, error) {
	t.Helper()
	whole, rest, err := responseAt(raw, method, len(raw))
	for at := range offsets(raw) {
		r, left, again := responseAt(raw, method, at)
		if !errors.Is(again, err) || again == nil && (left != rest || r.Status != whole.Status || r.Framing != whole.Framing) {
			t.Fatalf("%q split at %d: got %v, %q; want %v, %q", raw, at, again, left, err, rest)
		}
	}
	return whole, rest, err
}

func responseAt(raw, method string, at int) (r *Response, rest string, err error) {
	r = new(Response)
	l := Limits{}.forResponses()
	rest, err = stepwise(raw, at, func(b []byte) (int, error) { return r.Parse(b, method, &l) })
	return r, rest, err
}

// chunksSplit decodes raw split at each offset, and checks that this makes no
// difference. rest is what follows the last chunk's line.
func chunksSplit(t *testing.T, raw string) (data, rest string, err error) {
	t.Helper()
	data, rest, err = chunksAt(raw, len(raw))
	for at := range offsets(raw) {
		d, left, again := chunksAt(raw, at)
		if !errors.Is(again, err) || again == nil && (d != data || left != rest) {
			t.Fatalf("%q split at %d: got %q, %q, %v; want %q, %q, %v", raw, at, d, left, again, data, rest, err)
		}
	}
	return data, rest, err
}

// errUnended says that a chunked body has no end.
var errUnended = errors.New("no end")

func chunksAt(raw string, at int) (data, rest string, err error) {
	return chunksOf(raw, at, limits())
}

// responseChunks decodes raw as the body of a response, split at each offset.
func responseChunks(t *testing.T, raw string) (data string, err error) {
	t.Helper()
	l := Limits{}.forResponses()
	data, _, err = chunksOf(raw, len(raw), &l)
	for at := range offsets(raw) {
		got, _, again := chunksOf(raw, at, &l)
		if got != data || !errors.Is(again, err) {
			t.Fatalf("%q split at %d: got %q, %v; want %q, %v", raw, at, got, again, data, err)
		}
	}
	return data, err
}

func chunksOf(raw string, at int, l *Limits) (data, rest string, err error) {
	var c chunkedReader
	pieces := strings.Split(raw, "")
	if at >= 0 {
		pieces = []string{raw[:at], raw[at:]}
	}
	for i, piece := range pieces {
		for b := []byte(piece); len(b) > 0; {
			skip, n, err := c.next(b, l)
			if err != nil {
				return "", "", err
			}
			data += string(b[skip : skip+n])
			if b = b[skip+n:]; c.state == atTrailer {
				return data, string(b) + strings.Join(pieces[i+1:], ""), nil
			}
		}
	}
	return data, "", errUnended
}
