package proxy

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// After a good day more may be open on a quiet one, and explain and the state of the key say why.
func TestReturn_ConversionRemembers(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	w := newFor(t, `
keys: {phone: {from: "header:X-Phone", normalize: digits}, country: "header:X-Country"}
routes:
  - name: send
    match: {path: /send}
    upstream: 'URL'
    limits: [{name: unused, key: country, rate: 2/1d, return_on: {route: verify, key: phone}, conversion: 50%, memory: 14d, mode: enforce}]
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`, func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	})
	for _, phone := range []string{"1", "2", "3", "4", "5", "6"} {
		w.sends(200, "POST", "/send", "X-Country: CN", "X-Phone: "+phone)
		w.sends(200, "POST", "/verify", "X-Phone: "+phone)
	}
	now = now.Add(48 * time.Hour)
	for range 5 { // 2 and half of 6
		w.sends(200, "POST", "/send", "X-Country: CN", "X-Phone: 7")
	}
	w.sends(429, "POST", "/send", "X-Country: CN", "X-Phone: 7")
	want := ConversionStanding{Remembered: 3, Allowed: 5}
	e := w.explains("POST", "/send", "X-Country: CN", "X-Phone: 7")
	if c := e.Limits[0].Windows[0].Conversion; c == nil || *c != want {
		t.Errorf("explained as %+v", e.Limits[0])
	}
	s, err := w.standing("country=CN")
	if err != nil || len(s.Limits) != 1 {
		t.Fatal(s, err)
	}
	if got := s.Limits[0].Windows[0]; got.Conversion == nil || *got.Conversion != want || got.Used != 5 || got.Most != 5 || got.Left != 0 {
		t.Errorf("stands at %+v, %+v", got, got.Conversion)
	}
	if text := want.String(); text != "allows 5: 0 confirmed in the window, 3 remembered" {
		t.Error(text)
	}
	now = now.Add(12 * 24 * time.Hour)
	w.sends(200, "POST", "/send", "X-Country: CN", "X-Phone: 8")
	w.sends(200, "POST", "/send", "X-Country: CN", "X-Phone: 8")
	w.sends(429, "POST", "/send", "X-Country: CN", "X-Phone: 8")
}
