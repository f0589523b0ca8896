package http1

import (
	"errors"
	"strings"
	"testing"
)

func TestFields_OfHTTP2(t *testing.T) {
	var f Fields
	for _, line := range [][2]string{{"user-agent", "me"}, {"x-one_two", "1"}, {"x-request-id", ""}, {"dnt", "a b"}} {
		if err := f.AddHTTP2(line[0], line[1]); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if f.AddedName() != Other || !f.HasUnusualNames() || !f.Has(UserAgent) {
		t.Error("names are not recognized")
	}
	f.Drop("X-Request-Id")
	f.Add("X-Later", "2")
	var h Head
	h.AddFields(&f)
	if got, want := string(h.buf), "User-Agent: me\r\nX-One_two: 1\r\nDnt: a b\r\nX-Later: 2\r\n"; got != want || h.err != nil {
		t.Errorf("sent as %q, %v; want %q", got, h.err, want)
	}
	f = f.Emptied(1 << 10)
	for range f.All() {
		t.Error("a line after a reset")
	}
	if memory := f.buf; !poisoned && cap(memory) == 0 {
		t.Error("no memory is kept")
	}
	if f = f.Emptied(0); f.buf != nil {
		t.Error("more memory is kept than allowed")
	}
}

func TestFields_OfHTTP2AreValid(t *testing.T) {
	for line, want := range map[[2]string]error{
		{"X-A", "1"}: ErrFieldName, {"x a", "1"}: ErrFieldName, {"", "1"}: ErrFieldName, {"x:a", "1"}: ErrFieldName, {"é", "1"}: ErrFieldName,
		{"x-a", " 1"}: ErrFieldValue, {"x-a", "1\t"}: ErrFieldValue, {"x-a", "1\r\n"}: ErrFieldValue, {"x-a", "\x00"}: ErrFieldValue, {"x-a", "\x7f"}: ErrFieldValue,
		{"x-a", "é"}: nil, {"x-a", "1\t2"}: nil, {"!#$%&'*+-.^_`|~", "1"}: nil,
	} {
		var f Fields
		if err := f.AddHTTP2(line[0], line[1]); !errors.Is(err, want) {
			t.Errorf("%q: %v; want %v", line, err, want)
		}
	}
}

// FuzzFieldsOfHTTP2 compares a line that was received over HTTP/2 with the same line parsed.
func FuzzFieldsOfHTTP2(f *testing.F) {
	f.Add("x-a", "1")
	f.Add("content-length", "5")
	f.Add("cookie", "a=1; b=2")
	f.Fuzz(func(t *testing.T, name, value string) {
		var ours, theirs Fields
		if ours.AddHTTP2(name, value) != nil {
			return
		}
		var p fieldParser
		text := string(appendCanonical(nil, name)) + ": " + value + "\r\n\r\n"
		if done, err := p.parse([]byte(text), &theirs, fieldLimits{bytes: 1 << 24, lines: 10}); !done || err != nil {
			t.Fatalf("%q is refused over HTTP/1.1: %v", text, err)
		}
		a, b := Field{}, Field{}
		for a = range ours.All() {
		}
		for b = range theirs.All() {
		}
		if a.ID != b.ID || !strings.EqualFold(a.Name, b.Name) || a.Value != b.Value || ours.HasUnusualNames() != theirs.HasUnusualNames() || ours.present != theirs.present {
			t.Errorf("%q is %v over HTTP/2 and %v over HTTP/1.1", text, a, b)
		}
	})
}
