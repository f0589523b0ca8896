package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestGuard_BoundsNewKeys(t *testing.T) {
	h := newHand()
	g, err := limiter.NewGuard(limiter.Rate{Count: 3, Window: time.Minute}, time.Hour, limiter.MemoryOptions{Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	alice, bob := limiter.KeyOf("alice"), limiter.KeyOf("bob")
	for i := range 3 {
		if !g.Admit(alice, numbered(i)) {
			t.Fatalf("new key %d refused", i)
		}
	}
	for range 2 {
		if g.Admit(alice, numbered(3)) {
			t.Error("a fourth new key passed")
		}
	}
	for i := range 3 {
		if !g.Admit(alice, numbered(i)) || !g.Admit(bob, numbered(i)) {
			t.Errorf("known key %d refused", i)
		}
	}
	if !g.Admit(bob, numbered(3)) || !g.Admit(alice, numbered(3)) {
		t.Error("a refused key may not be brought by another source")
	}
	h.advance(time.Minute)
	if !g.Admit(alice, numbered(9)) {
		t.Error("refused a minute later")
	}
	h.advance(time.Hour)
	for i := range 4 {
		if g.Admit(alice, numbered(i)) != (i < 3) {
			t.Errorf("key %d after an hour, when all are new again", i)
		}
	}
	for _, bad := range []limiter.Rate{{}, {Count: 1}} {
		if _, err := limiter.NewGuard(bad, time.Hour, limiter.MemoryOptions{}); !errors.Is(err, limiter.ErrRate) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := limiter.NewGuard(limiter.Rate{Count: 1, Window: time.Second}, 0, limiter.MemoryOptions{}); !errors.Is(err, limiter.ErrRate) {
		t.Errorf("remembering nothing: %v", err)
	}
}
