package key

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// What the package comment says is safe for concurrent use is used by many at
// once, and the race detector looks on.
func TestSharedThings_ConcurrentUse(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	bearer := bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil))
	phone := guarded(t)
	country := &Spec{Name: "country", Of: phone, Part: Part{Kind: Country}}
	list := mustList(t, phone, "13800138000")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var v Value
			for i := range 200 {
				v.Reset()
				number := fmt.Sprintf("138%08d", (i*7+g)%50)
				m := sendsJSON(`{"phone":"` + number + `"}`)
				if err := phone.Extract(m, &v); err != nil || v.Text() != "+86"+number {
					t.Errorf("%s = %q, %v", number, v.Text(), err)
				}
				if got := list.Has(&v); got != (number == "13800138000") {
					t.Errorf("the list has %s: %v", number, got)
				}
				if Hash("new", v.Parts) == Hash("old", v.Parts) {
					t.Error("two secrets make one key")
				}
				if err := country.Extract(m, &v); err != nil || v.Text() != "CN" {
					t.Errorf("country = %q, %v", v.Text(), err)
				}
				v.Reset()
				if err := claimOf(tokens, "sub").Extract(bearer, &v); err != nil || v.Text() != "alice" {
					t.Errorf("claim = %q, %v", v.Text(), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestExtract_LeavesTheBodyAlone(t *testing.T) {
	for origin, m := range map[string]*sentRequest{
		"json:/user/phone": sendsJSON(string(document())),
		"form:phone":       sendsParts(part("phone", "1")),
		"form:a":           sendsForm("a=1&b=%41"),
	} {
		before := bytes.Clone(m.body.Bytes)
		if _, err := extract(of(origin), m); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.body.Bytes, before) {
			t.Errorf("%s changed the body", origin)
		}
	}
}

// A key of a header costs no allocation once a Value has been used.
func TestExtract_HeaderDoesNotAllocate(t *testing.T) {
	s := of("header:X-Phone", Trim, Digits)
	var v Value
	var r Request = header("13800138000")
	if n := testing.AllocsPerRun(100, func() {
		v.Reset()
		if err := s.Extract(r, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Extract allocates %v times; want none", n)
	}
}

func TestPhone_KnownNumberDoesNotAllocate(t *testing.T) {
	p := mustPhone(t, "CN")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.Parse("+8613800138000"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Parse allocates %v times; want none", n)
	}
}
