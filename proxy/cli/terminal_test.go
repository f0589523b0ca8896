package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/view"
)

func TestProgress_OnATerminalOnly(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, 100)
	p.show(5)
	p.end()
	if out.Len() != 0 || isTerminal(&out) {
		t.Errorf("%q on what is no terminal", out.String())
	}
	p = &progress{out: &out, size: 200}
	if _, err := p.count(strings.NewReader(strings.Repeat("x", 100))).Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	p.show(7)
	p.show(8) // too soon
	if want := "\r[" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "]  50 %  7 lines\x1b[K"; out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
	out.Reset()
	p.end()
	if out.String() != "\r\x1b[K" {
		t.Errorf("%q; want that the bar goes", out.String())
	}
	if got := (&progress{}).line(9); got != "9 lines" {
		t.Errorf("without a known end: %q", got)
	}
	if p = (&progress{size: 10, read: 20}); !strings.Contains(p.line(1), "100 %") {
		t.Errorf("%q; a file that grows", p.line(1))
	}
}

func TestPalette_ColoursTerminalsOnly(t *testing.T) {
	if (palette{}).bad("a") != "a" || newPalette(new(bytes.Buffer)).on {
		t.Error("what is no terminal is coloured")
	}
	if got := (palette{on: true}).bad("a"); got != "\x1b[31ma\x1b[0m" || (palette{on: true}).bad("") != "" {
		t.Errorf("%q", got)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if newPalette(null).on {
		t.Error("a file is coloured")
	}
}

// What a limit says is told in the words of its answer.
func TestExplainText_Verdicts(t *testing.T) {
	e := explainText{}
	enforced, shadow := view.ExplainedLimit{Mode: "enforce", Scope: "overall", Exposed: true, Cost: 1}, view.ExplainedLimit{Mode: "shadow", Scope: "overall", Exposed: true, Cost: 1}
	much := view.ExplainedLimit{Mode: "enforce", Scope: "per_instance", Cost: 3, Override: true, Shared: "a:b", Penalty: "banned", Wait: "500ms"}
	for want, got := range map[string]string{
		"allowed, 2 of 5 left":         e.verdict(enforced, view.ExplainedWindow{Allowed: true, Remaining: 2, Most: 5}),
		"refused, passes in 1m30s":     e.verdict(enforced, view.ExplainedWindow{WaitMS: 90_000}),
		"would refuse, passes in 20ms": e.verdict(shadow, view.ExplainedWindow{WaitMS: 20}),
		"banned for 1h0m0s":            e.verdict(enforced, view.ExplainedWindow{WaitMS: 3_600_000, Banned: true}),
		"allowed, 0 of 0 left; costs 3, per_instance, override, hidden from clients, shared with Redisson, banned, waits up to 500ms": e.verdict(much, view.ExplainedWindow{Allowed: true}),
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
