//go:build readers

// Package readers sends the same requests through a running Weir to real web
// frameworks and compares what each of them read with what Weir counted. It needs
// Node, Python, a JDK and Debian packages, so it is no part of ./test/run:
//
//	./test/interop/readers/run
//
// Each variation is a request that carries a phone number of its own somewhere, in
// some odd way. Weir allows one request an hour for each number. When the request
// comes through, the framework says which route it took and which number it read
// there, and a plain request for that number must then be refused: if it passes, the
// framework acted on a number that Weir had not counted, which is a leak.
//
// Keys that are missing are skipped in the configuration here, and a route for all
// the rest stands beside those with limits: what Weir does not see goes through.
//
// Values that a framework gives with those of the query and of a form brought
// together (PHP's $_REQUEST, a servlet's getParameter, Rack's params, Flask's values,
// Go's Form) count as read from either.
//
// # What is left out
//
//   - A program that brings together more than the punctuation of a number, for
//     example by cutting off what follows the eleventh digit, is its own normalizer;
//     only the key's normalize can say that, and the spellings here are those that
//     \D drops and those that NFKC brings together.
//   - Method overrides (X-Http-Method-Override, _method): a program that turns one
//     method into another wants limits on both.
//   - Routes that a program makes of headers of its own (X-Original-Url,
//     X-Rewrite-Url).
//   - Signed or encrypted cookies, which nobody can vary.
package readers

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// installed is the path of something that ./run has put in place.
func installed(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("WEIR_READERS")
	if folder == "" {
		t.Fatal("WEIR_READERS is not set: run ./test/interop/readers/run, which gets the frameworks first")
	}
	return filepath.Join(folder, name)
}

// setting is a number from the environment.
func setting(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is no number: %v", name, err)
	}
	return n
}
