package redisstore

import (
	"fmt"
	"strings"
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
