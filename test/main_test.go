// Package test looks at Weir from outside: it builds the binary, runs it as a
// process, and talks to it as clients, operators and failing machines do.
package test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-proxy/weir/test/weirtest"
)

// TestMain builds weir once and puts it first on PATH, for every test and
// script to run by its name. It has the race detector built in unless -short is
// given.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they wait for processes and clocks; there is such a flag
	dir, err := os.MkdirTemp("", "weir-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var flags []string
	if !testing.Short() {
		flags = []string{"-race"}
	}
	if _, err := weirtest.Build(dir, flags...); err != nil {
		fmt.Fprintln(os.Stderr, err) // the tests that need it fail
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each process lingers for a second
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}
