package test

import (
	"os/exec"
	"strings"
	"testing"
)

// What ./test/run says last is what was run, and only packages that need programs of
// others have them looked for.
func TestRun_SaysWhatItRan(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-short -run TestSplit ./test/report":    "1 passed, 0 failed",
		"-short -run ^TestNobody$ ./test/report": "0 passed, 0 failed",
	} {
		out, err := exec.Command("./run", strings.Fields(args)...).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || lines[len(lines)-1] != want {
			t.Errorf("./test/run %s: %v\n%s", args, err, out)
		}
		if strings.Contains(string(out), "install ") || !strings.Contains(string(out), "(1 of 1, ") {
			t.Errorf("./test/run %s installs, or does not say how far it is:\n%s", args, out)
		}
	}
}
