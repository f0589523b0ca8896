package config

import (
	"strings"
	"testing"
)

func TestLine_LeavesOutWhatIsUsual(t *testing.T) {
	c := mustLoad(t, write(t, "own.yaml", "upstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, rate: 1/1m, expose: false, algorithm: token_bucket}]}]\n"))
	limits, routes := c.Parts(nil)[0], c.Parts(nil)[1]
	if got, want := limits["a.l"], "{name: l, key: global, rate: 1/1m, mode: enforce, on_store_failure: local, expose: false}"; got != want {
		t.Errorf("limit %s; want %s", got, want)
	}
	if got, want := routes["a"], "{name: a, match: {path: /a}, upstream: demo}"; got != want {
		t.Errorf("route %s; want %s", got, want)
	}
}

// A value of a variable belongs to the machine that answers: others see its name, in whatever form it is written.
func TestCompare_NamesVariables(t *testing.T) {
	was := mustParse(t, small)
	for text, want := range map[string]string{
		"upstreams: {a: \"http://${SET}:80\"}\n":                     `upstream a added: {targets: [{url: "http://${SET}:80"}]}`,
		"upstreams: {a: {targets: [{url: \"http://${SET}:80\"}]}}\n": `upstream a added: {targets: [{url: "http://${SET}:80"}]}`,
		"keys: {a: \"header:${SET}\"}\n":                             `key a added: {from: "header:${SET}", on_missing: reject}`,
		"keys: {a: {from: \"header:${SET}\", on_missing: skip}}\n":   `key a added: {from: "header:${SET}", on_missing: skip}`,
	} {
		if got := Compare(was, mustParse(t, text+small)); len(got) != 1 || got[0].String() != want {
			t.Errorf("%s\nis told as %v; want %s", text, got, want)
		}
	}
}

// A limit that counts under another name than before is said to start anew, with what keeps its
// counts.
func TestCompare_SaysWhichLimitsStartAnew(t *testing.T) {
	was := mustParse(t, `routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{name: x, key: client_ip, rate: 2/1h}, {name: y, key: client_ip, rate: 5/1d}]}]`)
	routes := "\nroutes: [{name: a, match: {path: /a}, upstream: echo, limits: [%s]}]"
	for limits, want := range map[string]string{
		`limits: {x: {key: client_ip, rate: 2/1h}}` + strings.Replace(routes, "%s", "x", 1):                                                         "write was: a.x to keep its counts",
		`limits: {all: {key: client_ip, rate: 5/1d}}` + strings.Replace(routes, "%s", "all, {name: x, key: client_ip, rate: 2/1h}", 1):              "write was: a.y to keep its counts",
		`limits: {x: {key: client_ip, rate: 2/1h, was: a.x}}` + strings.Replace(routes, "%s", "x, {name: y, key: client_ip, rate: 5/1d}", 1):        "",
		strings.Replace(routes, "%s", "{name: x, key: client_ip, rate: 9/1h}, {name: y, key: client_ip, rate: 5/1d}, {key: global, rate: 1/1s}", 1): "",
	} {
		is := mustParse(t, limits)
		var notes []string
		for _, c := range Compare(was, is) {
			if c.Note != "" {
				notes = append(notes, c.String())
			}
		}
		if said := strings.Join(notes, "\n"); want == "" && said != "" || !strings.Contains(said, want) || want != "" && len(notes) != 1 {
			t.Errorf("%s\nthe notes are %q; want %q", limits, notes, want)
		}
		if warnings := Restarts(was, is); len(warnings) != len(notes) {
			t.Errorf("%s\nwarnings %v beside %d notes", limits, warnings, len(notes))
		}
	}
}
