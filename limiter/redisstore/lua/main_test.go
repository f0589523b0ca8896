package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/parse"
)

func TestRun_PrintsScripts(t *testing.T) {
	for _, args := range []string{
		"one gcra", "many token_bucket", "take gcra sliding_log", "refund concurrent", "note", "redisson/take", "redisson_window/inspect",
	} {
		var out bytes.Buffer
		if err := run(&out, strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if _, err := parse.Parse(&out, args); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestRun_SaysWhatItCanPrint(t *testing.T) {
	for _, args := range []string{"", "one", "many gcra sliding_log", "one leaky", "nothing gcra", "redisson", "redisson/nothing"} {
		if err := run(&bytes.Buffer{}, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), "usage: ") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
