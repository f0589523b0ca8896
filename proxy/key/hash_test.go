package key

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestHash(t *testing.T) {
	parts := []string{"phone", "+8613800138000"}
	if got, want := Hash("", parts), limiter.KeyOf(parts...); got != want {
		t.Errorf("without a secret it is %v; want %v, as before there was one", got, want)
	}
	if got, want := Hash("new", parts), limiter.KeyWithSecret([]byte("new"), parts...); got != want {
		t.Errorf("with a secret it is %v; want %v", got, want)
	}
	if Hash("new", parts) == Hash("old", parts) || Hash("new", parts) == Hash("", parts) {
		t.Error("two secrets make one key")
	}
}

// What the comment of Hash says, with a real store: 2/1h is never exceeded while a
// secret is replaced, and the previous one can be dropped an hour later.
func TestHash_RotatingASecretForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		limit := &limiter.Limit{Name: "sms.phone:1h", Rate: limiter.Rate{Count: 2, Window: time.Hour}}
		parts := []string{"phone", "+8613800138000"}
		take := func(secrets []string) bool {
			t.Helper()
			var claims []limiter.Claim
			for _, secret := range secrets {
				claims = append(claims, limiter.Claim{Limit: limit, Key: Hash(secret, parts), Cost: 1})
			}
			var d limiter.Decision
			if err := store.Take(context.Background(), claims, &d); err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		granted := func(secrets []string) {
			t.Helper()
			if !take(secrets) {
				t.Errorf("refused at %v under %q", time.Now(), secrets)
			}
			time.Sleep(time.Minute) // virtual
		}
		refused := func(secrets []string) {
			t.Helper()
			if take(secrets) {
				t.Errorf("granted at %v under %q", time.Now(), secrets)
			}
			time.Sleep(time.Minute) // virtual
		}
		before, during, after := []string{"old"}, []string{"new", "old"}, []string{"new"}
		granted(before) // 0:00
		granted(during) // 0:01, one proxy has the new secret
		refused(during)
		refused(before)              // another has not yet
		time.Sleep(56 * time.Minute) // 1:00, the first comes back
		granted(during)              // and is taken again
		granted(before)              // 1:01, so is the second
		refused(during)              // 1:02
		time.Sleep(58 * time.Minute) // 2:01, an hour after the last proxy was changed
		granted(during)              // 2:01
		granted(after)               // 2:02, the previous secret is dropped
		refused(after)               // and what was taken before still counts
	})
}

// A Memo finds the key that Hash finds, whatever it was asked before, and costs no allocation.
func TestMemo_IsHash(t *testing.T) {
	long := strings.Repeat("x", maxMemo)
	texts := [][]string{{"a", "b"}, {"ab"}, {"a", "b"}, {"", "ab"}, {"a", ""}, {"a"}, {}, {"", ""}, {""}, {long}, {long[1:]}, {long[1:], ""}, {long[2:]}, {"a", long}, {"a", "b"}}
	var m Memo
	for _, secret := range []string{"", "s", "t", ""} {
		for _, parts := range texts {
			for range 10 {
				if got, want := m.Hash(secret, parts), Hash(secret, parts); got != want {
					t.Errorf("%q with the secret %q: %v, want %v", parts, secret, got, want)
				}
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { m.Hash("s", texts[0]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
