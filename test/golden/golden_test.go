package golden_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/golden"
)

// A failing store is a Memory that can be made to fail.
type failing struct {
	*limiter.Memory
	fails atomic.Bool
}

func (f *failing) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if f.fails.Load() {
		return errors.New("as the test has it")
	}
	return f.Memory.Take(ctx, claims, d)
}

// What happens with counts in memory is what happened when the hashes were written.
func TestGolden_InMemory(t *testing.T) {
	golden.Compare(t, "memory", golden.Seeds, func(t *testing.T, file string, seed uint64) (record string) {
		synctest.Test(t, func(t *testing.T) {
			store := &failing{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
			record = golden.Record(t, file, seed, golden.Stand{
				Store: store, Advance: time.Sleep, Settle: synctest.Wait,
				Fail: func() { store.fails.Store(true) }, Heal: func() { store.fails.Store(false) },
			})
		})
		return record
	})
}

// An edit breaks a rule: it replaces a text of a file.
type edit struct{ file, from, to string }

// rules returns what the record must see; see TestGolden_SeesABrokenRule.
func rules() map[string]edit {
	return map[string]edit{
		"nothing is broken":                     {"limiter/permit_log.go", "", ""},
		"a permit more than the limit has":      {"limiter/permit_log.go", "return count - l.taken }", "return count - l.taken + 1 }"},
		"gcra forgets what is owed":             {"limiter/gcra.go", "s.debt, s.start = owed+float64(cost), now", "s.debt, s.start = owed, now"},
		"a fixed window never ends":             {"limiter/sliding_window.go", "now-s.start >= length", "now-s.start < 0"},
		"a reset within a minute is not told":   {"proxy/respond/ratelimit_headers.go", "p.reset(o); t > 0", "p.reset(o); t > 60"},
		"what is no digit is kept":              {"proxy/key/normalize.go", "return digits(s)", "return s"},
		"a list denies after others allow":      {"proxy/lists.go", "cmp.Compare(actionOrder(a.Action), actionOrder(b.Action))", "cmp.Compare(actionOrder(b.Action), actionOrder(a.Action))"},
		"failures of the upstream stay counted": {"proxy/limit/refund.go", "a.Route.RefundOn.Status.Has(", "!a.Route.RefundOn.Status.Has("},
		"a ban ends at once":                    {"proxy/limit/penalize.go", "of.Penalty.Ban)", "of.Penalty.Ban*0)"},
		"a refusal in shadow mode is not told":  {"proxy/limit/shadow.go", "q.addShadowRefusals(set, outcomes)", ""},
		"a cooldown does not grow":              {"limiter/cooldown.go", "l.Steps[min(s.taken, int64(len(l.Steps)))-1]", "l.Steps[0]"},
		"a value counts each time":              {"limiter/distinct.go", "s.supersede(value.prefix())", ""},
		"plans are ignored":                     {"proxy/plan.go", "p := l.ByPlan[d.Plan]", "p := l.ByPlan[d.Plan+d.Plan]"},
	}
}

// Code that moves takes its rule along.
func TestGolden_RulesAreThere(t *testing.T) {
	for rule, e := range rules() {
		if text, err := os.ReadFile(filepath.Join("../..", e.file)); err != nil || !strings.Contains(string(text), e.from) {
			t.Errorf("%s: %s has no %q (%v)", rule, e.file, e.from, err)
		}
	}
}
