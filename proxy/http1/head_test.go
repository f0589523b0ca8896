package http1

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

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
