//go:build rules

package golden_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The record sees a rule that is broken: each of these, by itself, makes it red, and nothing else does. ./test/proof rules
// runs it, because each is a build of its own. They run one after another: records are made with files of the same names.
func TestGolden_SeesABrokenRule(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for rule, edit := range map[string]struct{ file, from, to string }{
		"nothing is broken":                     {"limiter/permit_log.go", "", ""},
		"a permit more than the limit has":      {"limiter/permit_log.go", "return count - l.taken }", "return count - l.taken + 1 }"},
		"gcra forgets what is owed":             {"limiter/gcra.go", "s.debt, s.start = owed+float64(cost), now", "s.debt, s.start = owed, now"},
		"a fixed window never ends":             {"limiter/sliding_window.go", "return l.Rate.Count - s.taken }", "return l.Rate.Count }"},
		"a reset within a minute is not told":   {"proxy/respond/ratelimit_headers.go", "p.reset(o); t > 0", "p.reset(o); t > 60"},
		"what is no digit is kept":              {"proxy/key/normalize.go", "return digits(s)", "return s"},
		"a list denies after others allow":      {"proxy/lists.go", "cmp.Compare(actionOrder(a.Action), actionOrder(b.Action))", "cmp.Compare(actionOrder(b.Action), actionOrder(a.Action))"},
		"failures of the upstream stay counted": {"proxy/refund.go", "a.route.RefundOn.Status.Has(", "!a.route.RefundOn.Status.Has("},
		"a ban ends at once":                    {"proxy/penalize.go", "of.Penalty.Ban)", "of.Penalty.Ban*0)"},
		"a refusal in shadow mode is not told":  {"proxy/shadow.go", "q.addShadowRefusals(set, outcomes)", ""},
		"a cooldown does not grow":              {"limiter/cooldown.go", "l.Steps[min(s.taken, int64(len(l.Steps)))-1]", "l.Steps[0]"},
		"a value counts each time":              {"limiter/distinct.go", "s.supersede(value.prefix())", ""},
		"plans are ignored":                     {"proxy/plan.go", "p := l.plans[name]", "p := l.plans[name+name]"},
	} {
		t.Run(rule, func(t *testing.T) {
			path := filepath.Join(top, edit.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			broken := strings.ReplaceAll(string(text), edit.from, edit.to)
			if broken == string(text) && edit.from != edit.to {
				t.Fatalf("%s has no %q", edit.file, edit.from)
			}
			dir := t.TempDir()
			other, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
			replaced, _ := json.Marshal(map[string]map[string]string{"Replace": {path: other}})
			for name, content := range map[string][]byte{other: []byte(broken), overlay: replaced} {
				if err := os.WriteFile(name, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count", "1", "-run", "TestGolden_InMemory", ".")
			cmd.Env = append(os.Environ(), "WEIR_ROUNDS=8") // some rules are asked for by few requests
			out, err := cmd.CombinedOutput()
			switch seen := strings.Count(string(out), "something else happens than before"); {
			case edit.from == edit.to && err != nil:
				t.Errorf("red by itself: %v\n%s", err, out)
			case edit.from != edit.to && seen == 0:
				t.Errorf("nobody noticed: %v\n%s", err, out)
			default:
				t.Logf("%d records see it", seen)
			}
		})
	}
}
