package http1

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// fieldsOf parses field lines.
func fieldsOf(t *testing.T, lines string) *Fields {
	t.Helper()
	r, _, err := requestAt(lined("GET / HTTP/1.1|Host: a|"+lines+"||"), -1)
	if err != nil {
		t.Fatal(err)
	}
	r.Fields.Drop("host")
	return &r.Fields
}

// written is what is left of f, as it is sent on.
func written(t *testing.T, f *Fields) string {
	t.Helper()
	var h Head
	h.AddFields(f)
	if h.err != nil {
		t.Fatal(h.err)
	}
	return string(h.buf)
}

func TestFields_StripHopByHop(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"A: 1|B: 2|A: 3", "A: 1|B: 2|A: 3|"},
		{"Connection: close, X-Real-IP, ,b|B: 2|x-real-ip: 1|C: 3", "C: 3|"},
		{"Connection: x|B: 2|CONNECTION: foo, B|X: 1", ""},
		{"Keep-Alive: 1|Proxy-Connection: 1|TE: gzip|Trailer: a|Upgrade: h2c|HTTP2-Settings: a|Proxy-Authorization: a|C: 3", "C: 3|"},
		{"Content-Length: 0|C: 3", "C: 3|"},
		{"Connection: keep-alive|C: 3", "C: 3|"},
	} {
		f := fieldsOf(t, c.lines)
		f.StripHopByHop()
		if got := written(t, f); got != lined(c.want) {
			t.Errorf("%q: got %q; want %q", c.lines, got, lined(c.want))
		}
	}
}

// Lines go out as they are written here, however they stood and whichever beside them have
// been dropped.
func TestFields_EachLineIsGenerated(t *testing.T) {
	lines := []string{"A: 1", "B:2", "Date:\t3", "Vary:  4", "C: 5 ", "Age: 6\t", "D: ", "E:", "Cache-Control: 7", "F: 8"}
	for dropped := range 1 << len(lines) {
		f, want := fieldsOf(t, strings.Join(lines, "|")), ""
		for i, line := range lines {
			name, value, _ := strings.Cut(line, ":")
			if dropped>>i&1 == 1 {
				f.Drop(name)
			} else {
				want += name + ": " + strings.Trim(value, " \t") + "\r\n"
			}
		}
		f.Add("Z", "9")
		if got := written(t, f); got != want+"Z: 9\r\n" {
			t.Fatalf("got %q; want %q", got, want)
		}
	}
}

func TestFields_Drop(t *testing.T) {
	f := fieldsOf(t, "X-Forwarded-For: 1|x_forwarded_FOR: 2|X_Forwarded-For: 3|Y: 4|y: 5|Age: 6|_: 7")
	if !f.HasUnusualNames() {
		t.Error("no underscore was seen")
	}
	f.Drop("x-forwarded-for")
	if got := written(t, f); got != lined("x_forwarded_FOR: 2|X_Forwarded-For: 3|Y: 4|y: 5|Age: 6|_: 7|") {
		t.Errorf("got %q", got)
	}
	if got := f.AppendValues(nil, "Y"); !slices.Equal(got, []string{"4", "5"}) {
		t.Errorf("got %q", got)
	}
	f.Drop("Y")
	f.DropKnown(Age)
	f.DropFunc(func(f Field) bool { return strings.Contains(f.Name, "_") && f.ID == Other })
	if _, ok := f.Lookup("y"); ok || f.Has(Age) || written(t, f) != "" {
		t.Errorf("left: %q", written(t, f))
	}
}

// What is written goes through one place that lets nothing through which would
// be another line.
func TestHead_RejectsLineBreaks(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"X", "a\r\nB: c"}, {"X", "a\nb"}, {"X", "a\rb"}, {"X", "a\x00b"}, {"X\r\nY", "a"}, {"X:", "a"}, {"", "a"}, {"X Y", "a"},
		{"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}, {"Connection", "close"},
	} {
		var h Head
		h.Add(c.name, c.value)
		if !errors.Is(h.err, ErrOutgoing) || len(h.buf) > 0 {
			t.Errorf("%q: %q was written: %q, %v", c.name, c.value, h.buf, h.err)
		}
	}
	for _, target := range []string{"/a b", "/a\r\nX: y", "", "/\xff", "/#"} {
		var h Head
		if h.startRequest("GET", target); !errors.Is(h.err, ErrOutgoing) {
			t.Errorf("target %q was written", target)
		}
	}
	var h Head
	if h.startResponse(1000); !errors.Is(h.err, ErrOutgoing) {
		t.Error("status 1000 was written")
	}
	if _, err := NewFieldBlock("A", "b\n"); !errors.Is(err, ErrOutgoing) {
		t.Error("a block with a line feed was rendered")
	}
}

func TestHead_RejectsHopByHopFields(t *testing.T) {
	var h Head
	h.AddFields(fieldsOf(t, "Connection: close"))
	if !errors.Is(h.err, ErrOutgoing) {
		t.Error("Connection was sent on")
	}
}
