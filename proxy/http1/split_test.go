package http1

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
)

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

// offsets are those at which raw is split: all, or some if there are thousands,
// and byte by byte.
func offsets(raw string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := -1; at < len(raw); at += 1 + max(at, 0)/2000*len(raw)/50 {
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
