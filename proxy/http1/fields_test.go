package http1

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/rounds"
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
	if got := f.Values("Y"); !slices.Equal(got, []string{"4", "5"}) {
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

// What is added is looked up, stripped and sent as what was parsed, behind it.
func TestFields_Add(t *testing.T) {
	f := fieldsOf(t, "A: 1|Connection: b|B: 2")
	f.Add("a", "3")
	f.Add("X_Y", "4")
	f.Add("B", "5")
	if got := f.Values("A"); !slices.Equal(got, []string{"1", "3"}) || !f.HasUnusualNames() {
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
	if n := rounds.Allocations(100, add); n > 0 && !raced {
		t.Errorf("%v allocations", n)
	}
}

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
	if memory := f.buf; !reuse.Poisoned && cap(memory) == 0 {
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

// Of the well-known names a head takes all but those of the framing and of one
// connection, and Host once.
func TestHead_AddKnown(t *testing.T) {
	for n := Host; n < nameCount; n++ {
		for _, hasHost := range []bool{false, true} {
			h := Head{hasHost: hasHost}
			h.AddKnown(n, []byte("v"))
			refused := n == Host && hasHost || hopByHop&(1<<n) != 0 && n != ProxyAuthenticate && n != ProxyAuthorization
			want := n.String() + ": v\r\n"
			if refused {
				want = ""
			}
			if string(h.buf) != want || errors.Is(h.err, ErrOutgoing) != refused || h.hasDate != (n == Date) {
				t.Errorf("%v, has a host %v: got %q, %v, has a date %v", n, hasHost, h.buf, h.err, h.hasDate)
			}
		}
	}
}

// AddFields copies lines together, with the result of adding one after another.
func TestHead_AddFieldsLikeAdd(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	names := []string{"Host", "Date", "date", "A", "x-real-ip", "Vary", "B"}
	spaces := []string{" ", " ", " ", "", "  ", "\t"}
	pick := func(of []string) string { return of[random.IntN(len(of))] }
	for range 5000 {
		raw := "HTTP/1.1 200|"
		for i := range random.IntN(8) {
			raw += fmt.Sprint(pick(names), ":", pick(spaces), "v", i, pick([]string{"", "", " "}), "|")
		}
		r, _, err := responseAt(lined(raw+"|"), "GET", -1)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		f := &r.Fields
		for i := range random.IntN(3) {
			f.Add(pick(names), fmt.Sprint("added", i))
		}
		f.DropFunc(func(Field) bool { return random.IntN(4) == 0 })
		together := Head{hasHost: random.IntN(2) == 0}
		single := Head{hasHost: together.hasHost}
		together.AddFields(f)
		for line := range f.All() {
			if line.ID != Host || !single.hasHost {
				single.Add(line.Name, line.Value)
			}
		}
		if string(together.buf) != string(single.buf) || together.hasDate != single.hasDate || together.err != nil || single.err != nil {
			t.Fatalf("%q: got %q, %v, %v; want %q, %v, %v", raw, together.buf, together.hasDate, together.err, single.buf, single.hasDate, single.err)
		}
	}
}
