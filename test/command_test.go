package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weir-proxy/weir/test/redistest"
)

func TestCommand_Scripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "scripts",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// Every fault that the loader knows has a file that shows it and the exact words
// that an operator reads.
func TestCommand_CheckPrintsExactlyTheProblems(t *testing.T) {
	const dir = "../proxy/config" // the expected words name files from here
	files, err := filepath.Glob(dir + "/testdata/bad-*.yaml")
	if err != nil || len(files) < 45 {
		t.Fatalf("%d files of bad configurations, want at least 45 (%v)", len(files), err)
	}
	for name, value := range map[string]string{ // that the files speak of
		"SET": "set", "NUMBER": "7", "EMPTY": "", "TRICK": "a\nroutes: []", "DOLLAR": "${SET}",
	} {
		t.Setenv(name, value)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".want")
			if err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := command(t, dir, "check", "testdata/"+name)
			if code != 1 || stdout != string(want) || stderr != "" {
				t.Errorf("exit code %d, stderr %q, stdout\n%swant exit code 1 and stdout\n%s", code, stderr, stdout, want)
			}
		})
	}
}

// command runs weir in dir, which must end by itself, and returns what came of it.
func command(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "weir", args...)
	cmd.Dir = dir
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

// The admin port must be known to be asked.
func TestCommand_HealthcheckAsksTheProcess(t *testing.T) {
	t.Parallel()
	admin := net.JoinHostPort("127.0.0.1", fmt.Sprint(redistest.FreePort(t)))
	dir := t.TempDir()
	config := "upstreams: {demo: echo}\nroutes: [{match: {path: /}, upstream: demo}]\n" +
		"listen: {http: \"127.0.0.1:0\"}\nadmin: {http: \"" + admin + "\"}\n"
	write(t, dir+"/weir.yaml", config)
	w := startWith(t, dir)
	if code, stdout, stderr := command(t, dir, "healthcheck"); code != 0 {
		t.Errorf("healthcheck of a weir that lives exits %d %s %s, want 0", code, stdout, stderr)
	}
	// A file that got broken later is no reason to end a process that serves.
	write(t, dir+"/weir.yaml", "rootes: []\n")
	w.WaitForLog("reload refused", nil)
	if code, stdout, stderr := command(t, dir, "healthcheck", "--admin", admin); code != 0 {
		t.Errorf("healthcheck after a bad edit exits %d %s %s, want 0", code, stdout, stderr)
	}
	write(t, dir+"/weir.yaml", config)
	w.Kill()
	if code, _, stderr := command(t, dir, "healthcheck"); code != 1 || stderr == "" {
		t.Errorf("healthcheck of a weir that is gone exits %d %q, want 1 and a reason", code, stderr)
	}
}
