package redisstore

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// What a script publishes of a window names that window, whatever its limit is
// called; anything else names none.
func TestWindowOf_ReadsWhatScriptsTell(t *testing.T) {
	seen := map[string]windowID{}
	for _, prefix := range []string{"weir", "a:b"} {
		n := newNames(prefix, "one")
		for _, name := range []string{"l", "sms.phone:1m", "l:value", "l:fixed_window", "l:concurrent:value", "l:concurrent", "l:permits", "l:base", "l:", "l::", "l::x", ":l", "::"} {
			for kind := range 2 * limiter.NumAlgorithms {
				a := kind / 2
				c := limiter.Claim{
					Limit: &limiter.Limit{Name: name, Rate: limiter.Rate{Count: 1, Window: time.Second}, Algorithm: a, Scope: limiter.Scope(kind % 2)},
					Key:   limiter.KeyOf(prefix, name),
				}
				keys := n.keys(c)
				message, inBox := fmt.Sprint(int(a), ":", keys[0]), ""
				if a.IsPacked() {
					_, tag := splitName(name)
					inBox = " " + tag
					message += inBox
				}
				if id, ok := n.parseWindow(message); !ok || id != windowIDOf(&c) {
					t.Errorf("%q is %+v %v, want %+v", message, id, ok, windowIDOf(&c))
				}
				theirs, ok := newNames(prefix, "two").parseWindow(message)
				if !ok || (theirs == windowIDOf(&c)) != (c.Limit.Scope == limiter.Overall) {
					t.Errorf("%q is %+v %v to another client", message, theirs, ok)
				}
				for _, k := range keys {
					if other, ok := seen[k+inBox]; ok {
						t.Errorf("%q is of %+v as well", k, other)
					}
					seen[k+inBox] = windowIDOf(&c)
					if tag := "{" + c.Key.String() + "}"; !strings.Contains(k, tag) || !strings.HasPrefix(k, prefix+":") {
						t.Errorf("key %q without prefix or tag", k)
					}
				}
			}
		}
	}
	k := limiter.KeyOf("x").String()
	for _, bad := range []string{
		"", "0", "0:", "9:weir:{" + k + "}:l:value", "0:other:{" + k + "}:l:value", "0:weir:{short}:l:value",
		"0:weir:{" + k + "}:l:permits", "0:weir:{" + strings.Repeat("z", 32) + "}:l:value", "00:weir:{" + k + "}:l:value", "+0:weir:{" + k + "}:l:value", "10:weir:{" + k + "}:l:value", "256:weir:{" + k + "}:l:value",
	} {
		if id, ok := newNames("weir", "").parseWindow(bad); ok {
			t.Errorf("%q is %+v", bad, id)
		}
	}
}

// Whatever happens at the same time, no refusal stays that was asked for before an
// invalidation.
func TestRefusalCache_NoneIsOlderThanAnInvalidation(t *testing.T) {
	n := newRefusalCache(64)
	defer n.close()
	n.setSubscribed(true)
	c := limiter.Claim{Limit: &limiter.Limit{Name: "l"}, Key: limiter.KeyOf("k"), Cost: 1}
	id := windowIDOf(&c)
	refused := limiter.Decision{At: time.UnixMilli(1), Outcomes: []limiter.Outcome{{Wait: time.Hour}}}
	old := n.version.Load()
	n.invalidate(id)
	n.learn([]limiter.Claim{c}, time.Now(), old, &refused)
	if _, ok := n.cache.GetIfPresent(id); ok {
		t.Error("cached, though asked for before an invalidation")
	}
	stayed := 0
	for range 3000 {
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				version := n.version.Load()
				d := limiter.Decision{At: time.UnixMilli(int64(version)), Outcomes: refused.Outcomes}
				n.learn([]limiter.Claim{c}, time.Now(), version, &d)
			})
		}
		all.Go(func() { n.invalidate(id) })
		all.Wait()
		if d, ok := n.cache.GetIfPresent(id); ok {
			if stayed++; d.redisTime != int64(n.version.Load()) {
				t.Fatalf("asked for at version %d, now %d", d.redisTime, n.version.Load())
			}
		}
		n.setSubscribed(true)
	}
	if stayed == 0 {
		t.Error("none was ever cached")
	}
}
