//go:build programs

package test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The build command of the Dockerfile, run as it stands, makes a static binary
// that runs, and knows the version that the linker is told.
func TestDocker_BuildCommandMakesAStaticBinary(t *testing.T) {
	t.Parallel()
	_, build, found := strings.Cut(dockerfile(t), "CGO_ENABLED=0")
	if !found {
		t.Fatal("the build is not static")
	}
	build, _, _ = strings.Cut(build, "\n")
	binary := filepath.Join(t.TempDir(), "weir")
	build = strings.Replace(build, "/out/weir", binary, 1)
	cmd := exec.Command("sh", "-ec", "export VERSION=v1.2.3 REVISION=0123abc DATE=2026-01-02T03:04:05Z CGO_ENABLED=0"+strings.Replace(build, "go build", "\n go build", 1))
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}
	if out, err := exec.Command(binary, "version").CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "weir v1.2.3 (commit 0123abc, go") {
		t.Fatalf("the binary says %s (%v), not the version that the linker was told", out, err)
	}
	if out, err := exec.Command(binary, "version", "--json").Output(); err != nil || !strings.Contains(string(out), `"date": "2026-01-02T03:04:05Z"`) {
		t.Errorf("the binary says %s (%v), not the date that the linker was told", out, err)
	}
	file, err := elf.Open(binary)
	if err != nil {
		t.Logf("not an ELF file here: %v", err)
		return
	}
	defer file.Close()
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the binary needs %v (%v)", libraries, err)
	}
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the binary needs an interpreter")
	}
}
