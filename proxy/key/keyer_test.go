package key

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestKeyer(t *testing.T) {
	parts := []string{"phone", "+8613800138000"}
	plain, old, fresh := limiter.KeyOf(parts...), limiter.KeyWithSecret([]byte("old"), parts...), limiter.KeyWithSecret([]byte("new"), parts...)
	for name, c := range map[string]struct {
		keyer  Keyer
		key    limiter.Key
		former []limiter.Key
	}{
		"zero":               {Keyer{}, plain, nil},
		"none":               {NewKeyer(), plain, nil},
		"an empty secret":    {NewKeyer(nil), plain, nil},
		"one":                {NewKeyer([]byte("new")), fresh, nil},
		"two":                {NewKeyer([]byte("new"), []byte("old")), fresh, []limiter.Key{old}},
		"one after none":     {NewKeyer([]byte("new"), nil), fresh, []limiter.Key{plain}},
		"three, one doubled": {NewKeyer([]byte("new"), []byte("old"), []byte("new"), nil), fresh, []limiter.Key{old, plain}},
	} {
		if got := c.keyer.Key(parts); got != c.key {
			t.Errorf("%s: Key = %v; want %v", name, got, c.key)
		}
		if got := c.keyer.Former(nil, parts); !slices.Equal(got, c.former) {
			t.Errorf("%s: Former = %v; want %v", name, got, c.former)
		}
	}
}

func TestNewKeyer_CopiesSecrets(t *testing.T) {
	secret := []byte("new")
	k := NewKeyer(secret)
	before := k.Key([]string{"a"})
	secret[0] = 'x'
	if k.Key([]string{"a"}) != before {
		t.Error("the key changed with the caller's slice; want a copy")
	}
}

// What the comment of Keyer says, with a real store: 2/1h is never exceeded
// while a secret is replaced, and the former one can be dropped an hour later.
func TestKeyer_ReplacingASecretForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		limit := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 2, Window: time.Hour}}
		parts := []string{"phone", "+8613800138000"}
		take := func(k Keyer) bool {
			t.Helper()
			claims := []limiter.Claim{{Limit: limit, Key: k.Key(parts), Cost: 1}}
			for _, former := range k.Former(nil, parts) {
				claims = append(claims, limiter.Claim{Limit: limit, Key: former, Cost: 1})
			}
			var d limiter.Decision
			if err := store.Take(context.Background(), claims, &d); err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		before, during, after := NewKeyer([]byte("old")), NewKeyer([]byte("new"), []byte("old")), NewKeyer([]byte("new"))
		step := func(k Keyer, want bool) {
			t.Helper()
			if got := take(k); got != want {
				t.Errorf("at %v: allowed %v; want %v", time.Now(), got, want)
			}
			time.Sleep(time.Minute) // virtual
		}
		step(before, true) // 0:00
		step(during, true) // 0:01, one proxy has the new secret
		step(during, false)
		step(before, false)          // another has not yet
		time.Sleep(56 * time.Minute) // 1:00, the first comes back
		step(during, true)           // and is taken again
		step(before, true)           // 1:01, so is the second
		step(during, false)          // 1:02
		time.Sleep(58 * time.Minute) // 2:01, an hour after the last proxy was changed
		step(during, true)           // 2:01
		step(after, true)            // 2:02, the former secret is dropped
		step(after, false)           // and what was taken before still counts
	})
}
