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
	for rule, edit := range rules() {
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
