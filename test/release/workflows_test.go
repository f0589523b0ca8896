package release

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// complaints are what actionlint says of a workflow.
func complaints(t *testing.T, name string, text []byte) []*actionlint.Error {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := linter.Lint(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func workflows(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 3 {
		t.Fatalf("the workflows are %v (%v)", files, err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = text
	}
	return all
}

func TestWorkflows_AreGood(t *testing.T) {
	for name, text := range workflows(t) {
		for _, e := range complaints(t, name, text) {
			t.Errorf("%s", e)
		}
		// Rights are given job by job.
		if !strings.Contains(string(text), "\npermissions: {}\n") {
			t.Errorf("%s gives rights to all its jobs", name)
		}
	}
}

func TestWorkflows_MistakesAreSeen(t *testing.T) {
	text := string(workflows(t)["release.yml"])
	for right, wrong := range map[string]string{
		"runs-on: ubuntu-latest": "run-on: ubuntu-latest",
		"contents: write":        "contents: writes",
		"${{ github.token }}":    "${{ github.tokn }}",
		"tags: [\"v*\"]":         "tag: [\"v*\"]",
	} {
		if !strings.Contains(text, right) {
			t.Errorf("release.yml does not hold %q any more", right)
		}
		if len(complaints(t, "release.yml", []byte(strings.Replace(text, right, wrong, 1)))) == 0 {
			t.Errorf("%q is taken", wrong)
		}
	}
}
