package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/logtest"
)

// The exit code says whether the result can be used.
func TestSimulate_ExitCodes(t *testing.T) {
	weir := writeConfig(t, "")
	ordered := strings.Repeat(accessLine("10:00:00"), 100) + strings.Repeat(accessLine("11:05:47"), 100)
	for name, c := range map[string]struct {
		log  string
		code int
		want string
	}{
		"requests":               {ordered, exitOK, "200 passed"},
		"few lines out of order": {ordered + accessLine("09:00:00"), exitOK, "note: 1 of 201 requests"},
		"out of order":           {ordered + strings.Repeat(accessLine("09:00:00"), 3), exitDoubt, "warning: the result is wrong: "},
		"no requests":            {"a\nb\n", exitFailure, "no line is a request"},
		"empty":                  {"", exitFailure, "the log is empty"},
		"a time long ago":        {ordered + `{"time":"0001-01-01T00:00:00Z","method":"GET","uri":"/a"}` + "\n", exitOK, "1 lines cannot be parsed"},
		"before 1970":            {ordered + `{"time":"1969-12-31T23:59:59Z","method":"GET","uri":"/a"}` + "\n", exitOK, "1 lines cannot be parsed"},
		"a time far ahead":       {`{"time":"9999-01-01T00:00:00Z","method":"GET","uri":"/a"}` + "\n" + ordered, exitOK, "1 lines cannot be parsed"},
		"only times long ago":    {`{"time":"0001-01-01T00:00:00Z","method":"GET","uri":"/a"}` + "\n", exitFailure, "no line is a request"},
	} {
		path := filepath.Join(t.TempDir(), "access.log")
		if err := os.WriteFile(path, []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := runWeir("simulate", "-c", weir, path); code != c.code || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: exit %d, %s%s; want %d and %q", name, code, stdout, stderr, c.code, c.want)
		}
	}
}

// A copy of what check --effective prints lacks values that it does not show, and the comparison says so.
func TestSimulate_SaysWhatACopyLacks(t *testing.T) {
	weir := writeConfig(t, "keys: {phone: {from: 'header:X-Phone', sensitive: true}}\nlists: {vip: {key: phone, values: ['1', '2'], action: bypass}}\n")
	code, effective, stderr := runWeir("check", "--effective", weir)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	dir := t.TempDir()
	log, copied := filepath.Join(dir, "access.log"), filepath.Join(dir, "copied.yaml")
	if err := cmp.Or(os.WriteFile(log, []byte(accessLine("10:00:00")), 0o600), os.WriteFile(copied, []byte(effective), 0o600)); err != nil {
		t.Fatal(err)
	}
	for other, want := range map[string]bool{copied: true, weir: false} {
		code, stdout, stderr := runWeir("simulate", "-c", weir, "--compare", other, log)
		if got := strings.Contains(stdout, "2 values are not in the other configuration"); code != exitOK || got != want {
			t.Errorf("exit %d, %s%s; want that a copy lacks two: %v", code, stdout, stderr, want)
		}
	}
}

// endless is an input that repeats a line without end. Without a line it has nothing to read until it is
// closed.
type endless struct {
	line  string
	began chan struct{} // receives when it is read
	hold  io.Reader
}

// Read implements io.Reader.
func (e endless) Read(p []byte) (int, error) {
	select {
	case e.began <- struct{}{}:
	default:
	}
	if e.line == "" {
		return e.hold.Read(p)
	}
	return copy(p, strings.Repeat(e.line, len(p)/len(e.line))), nil
}

// A simulation ends when it is told to, whatever its input has: lines that are no requests, requests, or
// nothing.
func TestSimulate_EndsWhenToldTo(t *testing.T) {
	weir := writeConfig(t, "")
	hold, end := io.Pipe()
	defer end.Close()
	for _, line := range []string{`{"a":1}` + "\n", accessLine("11:05:47"), "x\n", ""} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := endless{line, make(chan struct{}), hold}
		var out, errs logtest.Log
		ended := make(chan int)
		go func() {
			ended <- Run(ctx, []string{"simulate", "-c", weir, "-"}, Env{Stdin: in, Stdout: &out, Stderr: &errs})
		}()
		<-in.began
		cancel(errors.New("told to end"))
		if code := <-ended; code != exitFailure || !strings.Contains(errs.String(), "told to end") {
			t.Errorf("with %q: exit %d, %s", line, code, errs.String())
		}
	}
}
