package http1

import (
	"errors"
	"slices"
	"testing"
)

// What is added is looked up, stripped and sent as what was parsed, behind it.
func TestFields_Add(t *testing.T) {
	f := fieldsOf(t, "A: 1|Connection: b|B: 2")
	f.Add("a", "3")
	f.Add("X_Y", "4")
	f.Add("B", "5")
	if got := f.AppendValues(nil, "A"); !slices.Equal(got, []string{"1", "3"}) || !f.HasUnusualNames() {
		t.Errorf("got %q, odd %t", got, f.HasUnusualNames())
	}
	f.StripHopByHop()
	if got := written(t, f); got != lined("A: 1|a: 3|X_Y: 4|") {
		t.Errorf("got %q", got)
	}
	f.Set("A", "6")
	f.Del("x_y")
	if got := written(t, f); got != lined("A: 6|") {
		t.Errorf("got %q", got)
	}
	f.Add("Date", "now")
	if value, ok := f.Value(Date); !ok || value != "now" {
		t.Errorf("Date is %q, %t", value, ok)
	}
}

// What Connection names is dropped, also if the line was added.
func TestFields_AddedConnectionNamesFields(t *testing.T) {
	for _, value := range []string{"b", "close, b", "keep-alive,\tB"} {
		f := fieldsOf(t, "Connection: keep-alive|A: 1|B: 2")
		f.Add("connection", value)
		f.StripHopByHop()
		if got := written(t, f); got != lined("A: 1|") {
			t.Errorf("%s: got %q", value, got)
		}
	}
}

// The zero Fields can be added to, and a copy has memory of its own.
func TestFields_CloneAndReset(t *testing.T) {
	var f Fields
	f.Grow(2, 10)
	f.Add("A", "1")
	c := f.Clone()
	f.Reset()
	f.Add("Z", "9")
	if got := written(t, c); got != lined("A: 1|") {
		t.Errorf("the copy has %q", got)
	}
	if got := written(t, &f); got != lined("Z: 9|") {
		t.Errorf("got %q", got)
	}
}

// What is added is checked when it is sent, as nobody has parsed it.
func TestFields_AddedLinesAreValidated(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"", "1"}, {"A B", "1"}, {"A", "1\r\nB: 2"}, {"A", "\x00"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "1"}, {"Connection", "close"},
	} {
		var f Fields
		f.Add(c.name, c.value)
		var h Head
		if h.AddFields(&f); !errors.Is(h.err, ErrOutgoing) {
			t.Errorf("%q: %q is sent as %q, %v", c.name, c.value, h.buf, h.err)
		}
	}
}

func TestFields_AddReusesMemory(t *testing.T) {
	f := fieldsOf(t, "A: 1")
	lines, known := len(f.lines), f.present
	add := func() {
		f.lines, f.present, f.added = f.lines[:lines], known, f.added[:0]
		f.Set("RateLimit", "1")
		f.Add("X-Request-Id", "2")
	}
	add()
	if n := testing.AllocsPerRun(100, add); n > 0 && !raced {
		t.Errorf("%v allocations", n)
	}
}
