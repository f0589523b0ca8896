package limiter_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Parts are told apart by their lengths, and nothing a client sends makes two
// lists of parts the same key.
func TestKeyOf_TellsPartsApart(t *testing.T) {
	seen := map[limiter.Key][]string{}
	for _, parts := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"ab", "c"}, {"a", "bc"}, {"a:b"}, {"\x00"}, {"\x00", ""},
		{"a\x00\x00\x00\x00\x00\x00\x00\x01b"},
	} {
		k := limiter.KeyOf(parts...)
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q are the same key", parts, other)
		}
		if k != limiter.KeyOf(parts...) {
			t.Errorf("%q has two keys", parts)
		}
		seen[k] = parts
	}
}

func TestKeyWithSecret_NeedsTheSecret(t *testing.T) {
	plain, a, b := limiter.KeyOf("x"), limiter.KeyWithSecret([]byte("a"), "x"), limiter.KeyWithSecret([]byte("b"), "x")
	if plain == a || a == b || a != limiter.KeyWithSecret([]byte("a"), "x") {
		t.Errorf("%v %v %v", plain, a, b)
	}
}

func TestKey_String(t *testing.T) {
	if s := limiter.KeyOf("x").String(); len(s) != 32 || strings.ToLower(s) != s {
		t.Errorf("%q", s)
	}
}

// standingOf is how the one claim stands in m.
func standingOf(t *testing.T, m *limiter.Memory, c []limiter.Claim) limiter.KeyStatus {
	t.Helper()
	in, err := m.Inspect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return in.Statuses[0]
}

func TestChange_Apply(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.GCRA, limiter.Distinct} {
		t.Run(a.String(), func(t *testing.T) {
			now := time.UnixMilli(1_800_000_000_000)
			m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
			c := []limiter.Claim{{
				Limit: &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 5, Window: time.Hour}, Algorithm: a},
				Key:   limiter.KeyOf("k"), Cost: 1,
			}}
			for i := range byte(5) {
				var d limiter.Decision
				c[0].Value = limiter.Key{i}
				if err := m.Take(t.Context(), c, &d); err != nil || !d.Allowed {
					t.Fatalf("%+v %v", d, err)
				}
			}
			for _, step := range []struct {
				limiter.Change
				left   int64
				banned time.Duration
			}{
				{limiter.Change{Action: limiter.ActionGrant, Grant: 2}, 2, 0},
				{limiter.Change{Action: limiter.ActionBan, Ban: time.Minute}, 2, time.Minute},
				{limiter.Change{Action: limiter.ActionBan}, 2, 0},
				{limiter.Change{Action: limiter.ActionGrant, Grant: 1_000_000}, 5, 0},
				{limiter.Change{Action: limiter.ActionBan, Ban: time.Minute}, 5, time.Minute},
				{limiter.Change{Action: limiter.ActionReset}, 5, 0},
			} {
				if err := step.Apply(t.Context(), m, c); err != nil {
					t.Fatal(err)
				}
				if got := standingOf(t, m, c); got.Remaining != step.left || got.BannedFor != step.banned {
					t.Errorf("after %+v: %+v, want %d left and a ban of %v", step.Change, got, step.left, step.banned)
				}
			}
			if err := (limiter.Change{Action: "drop"}).Apply(t.Context(), m, c); !errors.Is(err, limiter.ErrInvalidLimit) {
				t.Errorf("%v; want ErrLimit", err)
			}
		})
	}
}

// More than the capacity is used of a limit that was lowered, or with a conversion or a debt.
func TestChange_GrantsWhatIsUsedBeyondTheCapacity(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		if a.HasLeases() || a.HasSteps() || a.HasConversion() || a.HasBurst() {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.UnixMilli(1_800_000_000_000) }})
			before := &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 12, Window: time.Hour}, Algorithm: a}
			lower := &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 5, Window: time.Hour}, Algorithm: a}
			c := []limiter.Claim{{Limit: before, Key: limiter.KeyOf("k"), Cost: 1}}
			for i := range byte(12) {
				var d limiter.Decision
				c[0].Value = limiter.Key{i}
				if err := m.Take(t.Context(), c, &d); err != nil || !d.Allowed {
					t.Fatalf("%+v %v", d, err)
				}
			}
			c[0].Limit = lower
			for _, step := range []struct{ grant, used int64 }{{1, 11}, {8, 3}, {1_000_000_000, 0}} {
				change := limiter.Change{Action: limiter.ActionGrant, Grant: step.grant}
				if err := change.Apply(t.Context(), m, c); err != nil {
					t.Fatal(err)
				}
				if got := standingOf(t, m, c); got.Used != step.used || got.Remaining != max(5-step.used, 0) {
					t.Errorf("after %d more: %+v, want %d used", step.grant, got, step.used)
				}
			}
		})
	}
}

// A grant of a million permits of a limit that was lowered to one is not a million calls of the store.
func TestChange_GrantIsBounded(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.UnixMilli(1_800_000_000_000) }})
	c := []limiter.Claim{{Limit: &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 1_000_000, Window: time.Hour}}, Key: limiter.KeyOf("k"), Cost: 1_000_000}}
	var d limiter.Decision
	if err := m.Take(t.Context(), c, &d); err != nil || !d.Allowed {
		t.Fatalf("%+v %v", d, err)
	}
	c[0].Limit, c[0].Cost = &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 1, Window: time.Hour}}, 1
	if err := (limiter.Change{Action: limiter.ActionGrant, Grant: 1_000_000}).Apply(t.Context(), m, c); err != nil {
		t.Fatal(err)
	}
	if got := standingOf(t, m, c); got.Used != 1_000_000-limiter.MaxDistinct {
		t.Errorf("%d are used after as many calls as are made at most", got.Used)
	}
}

func TestScope_HasNames(t *testing.T) {
	for name, want := range map[string]limiter.Scope{"overall": limiter.Overall, "per_instance": limiter.PerClient} {
		if got, err := limiter.ParseScope(name); got != want || err != nil || got.String() != name {
			t.Errorf("%q is %v %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "client", "OVERALL"} {
		if _, err := limiter.ParseScope(name); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", name, err)
		}
	}
	l := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1, Window: time.Second}, Scope: limiter.PerClient}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	l.Scope++
	if err := l.Check(); !errors.Is(err, limiter.ErrInvalidLimit) || l.Scope.String() != "scope 2" {
		t.Errorf("%v: %v", l.Scope, err)
	}
}

// A Memory is one client: there is nobody to count apart from.
func TestMemory_IsOneClient(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	l := &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 2, Window: time.Hour}, Scope: limiter.PerClient}
	for i, want := range []bool{true, true, false} {
		var d limiter.Decision
		err := m.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}, &d)
		if err != nil || d.Allowed != want {
			t.Errorf("take %d: %+v %v", i, d, err)
		}
	}
}

func TestCheckRedissonName(t *testing.T) {
	for name, good := range map[string]bool{
		"rl": true, "redisson:demo:limit": true, "a{b}c": true, "{x}": true, "a b": true, "values": true, "a:value:b": true,
		"": false, "a{b": false, "a}b": false, "a}b{": false, "{}x": false, "{a}{b}": false, "{{a}}": false, "{a}}": false,
		"codes{a}:555:permits": false, "{a}:value": false, "a:permits": false, "{a}:value:d2a6b9c6-52a5-4bb0-9d6c-2f4f4f7a1e11": false,
		strings.Repeat("x", 512): true, strings.Repeat("x", 513): false,
	} {
		if err := limiter.CheckRedissonName(name); (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckRedissonKey(t *testing.T) {
	for text, good := range map[string]bool{
		"+8613800138000": true, "192.0.2.1": true, "2001:db8::/64": true, "é": true, "": true,
		"a b": false, "{a": false, "a}": false, "a\n": false, "a\x00": false, "a\u200b": false, "\xff": false, "\u00a0": false,
	} {
		if err := limiter.CheckRedissonKey(text); (err == nil) != good || err != nil && !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRedissonFormOf(t *testing.T) {
	for version, want := range map[string]limiter.RedissonFormat{
		"1.0": limiter.RedissonWindow, "3.11.6": limiter.RedissonWindow, "3.13.2": limiter.RedissonWindow,
		"3.13.3": limiter.RedissonFloat, "3.13": limiter.RedissonFloat, "3.16.3": limiter.RedissonFloat,
		"3.16.4": limiter.RedissonLong, "3.16": limiter.RedissonLong, "3.17": limiter.RedissonByte, "4.7.0": limiter.RedissonByte,
	} {
		if got, err := limiter.RedissonFormatOf(version); got != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", version, got, err, want)
		}
	}
	for _, bad := range []string{"", "3", "3.", "x.y", "3.1.2.3", "-3.1", "0.1", "3.16.3-SNAPSHOT"} {
		if form, err := limiter.RedissonFormatOf(bad); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v, %v", bad, form, err)
		}
	}
}

// Preparing a limit never hides that it is not valid: neither its own fault nor that of a
// copy that was changed.
func TestLimitPrepare_KeepsTheCheck(t *testing.T) {
	valid := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Second}}
	if err := valid.Prepare(); err != nil {
		t.Fatal(err)
	}
	spoil := map[string]func(l *limiter.Limit){
		"no name":            func(l *limiter.Limit) { l.Name = "" },
		"a brace":            func(l *limiter.Limit) { l.Name = "{l}" },
		"no count":           func(l *limiter.Limit) { l.Rate.Count = 0 },
		"no window":          func(l *limiter.Limit) { l.Rate.Window = 0 },
		"an algorithm of 99": func(l *limiter.Limit) { l.Algorithm = 99 },
		"a scope of 99":      func(l *limiter.Limit) { l.Scope = 99 },
		"a burst":            func(l *limiter.Limit) { l.Burst = 2 },
		"steps":              func(l *limiter.Limit) { l.Steps = []time.Duration{time.Second} },
	}
	m := limiter.NewMemory(limiter.MemoryOptions{})
	for name, change := range spoil {
		l := valid // is not prepared itself
		change(&l)
		var d limiter.Decision
		claims := []limiter.Claim{{Limit: &l, Key: limiter.KeyOf("k"), Cost: 1}}
		if err := m.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s in a copy: %v", name, err)
		}
		if err := l.Prepare(); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s: Prepare returns %v", name, err)
		}
		if err := limiter.CheckClaims(claims); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s after Prepare: %v", name, err)
		}
	}
	for _, cost := range []int64{0, 6} {
		if err := (limiter.Claim{Limit: &valid, Cost: cost}).Check(); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Errorf("a cost of %d: %v", cost, err)
		}
	}
	if err := (limiter.Claim{Limit: &valid, Cost: 5}).Check(); err != nil {
		t.Error(err)
	}
}

// Limits of one name count together, prepared or not, and each Memory by itself, also
// when they are used for the first time at the same time.
func TestLimitPrepare_CountsByName(t *testing.T) {
	rate := limiter.Rate{Count: 100, Window: time.Hour}
	limits := []*limiter.Limit{{Name: "a", Rate: rate}, {Name: "a", Rate: rate}, {Name: "b", Rate: rate}, {Name: "b", Rate: rate}}
	for _, l := range limits[1:] {
		if err := l.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	renamed := *limits[1] // a copy that counts by its own name
	renamed.Name = "b"
	limits = append(limits, &renamed)
	for range 2 {
		memories := []*limiter.Memory{limiter.NewMemory(limiter.MemoryOptions{}), limiter.NewMemory(limiter.MemoryOptions{})}
		for _, m := range memories {
			var all sync.WaitGroup
			for _, l := range slices.Backward(limits) {
				for range 5 {
					all.Go(func() {
						var d limiter.Decision
						if err := m.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}, &d); err != nil || !d.Allowed {
							t.Errorf("%+v %v", d, err)
						}
					})
				}
			}
			all.Wait()
		}
		for _, m := range memories {
			for i, want := range []int64{90, 90, 85, 85, 85} {
				var d limiter.Decision
				if err := m.Peek(t.Context(), []limiter.Claim{{Limit: limits[i], Key: limiter.KeyOf("k"), Cost: 1}}, &d); err != nil || d.Outcomes[0].Remaining != want {
					t.Errorf("limit %d: %+v %v, want %d", i, d, err, want)
				}
			}
		}
	}
}
