package bundle

import (
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// awkwardValues are values that YAML writes in several ways, some of which look like
// something else.
func awkwardValues() []string {
	return []string{
		"alice", "it's alice", `say "alice"`, "alice, bob", "alice: bob", "alice #1", "日本 alice", "alice\\bob", "alice'", `"alice"`, "[alice]", "{alice}",
		"- alice", "&alice", "*alice", "!alice", "%alice", "@alice", "`alice`", "alice=bob", "alice]", "alice}", "alice's \"own\"", "Ünïcödé alice", "\U0001f600 alice",
	}
}

// However a value of a list, or the name of an override, is written, it is hashed in its
// place, and what surrounds it stays.
func TestConceal_InEveryStyleOfYAML(t *testing.T) {
	at := ownConfig(t, small)
	for _, value := range awkwardValues() {
		for name, style := range map[string]yaml.Style{"plain": 0, "single": yaml.SingleQuotedStyle, "double": yaml.DoubleQuotedStyle} {
			for _, around := range []yaml.Style{0, yaml.FlowStyle} {
				written := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: style}
				after := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "carol"}
				text := "keys: {user: {from: 'query:user', sensitive: true}}\nlists:\n  l:\n    key: user\n    action: deny\n" + indented("values", &yaml.Node{Kind: yaml.SequenceNode, Style: around, Content: []*yaml.Node{written, after}}, t) +
					"routes:\n- name: a\n  match: {path: /a}\n  upstream: echo\n  lists: [l]\n  limits:\n  - name: n\n    key: user\n    rate: 1/1h\n" +
					indented("overrides", &yaml.Node{Kind: yaml.MappingNode, Style: around, Content: []*yaml.Node{written, {Kind: yaml.ScalarNode, Value: "2/1h"}}}, t)
				b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}
				what := fmt.Sprintf("%q, %s, %v", value, name, around == yaml.FlowStyle)
				plain, err := Unpack(at, b)
				if err != nil {
					t.Fatalf("%s: %v\n%s", what, err, text)
				}
				hashed, err := b.Conceal(plain, nil)
				if err != nil {
					t.Errorf("%s: %v\n%s", what, err, text)
					continue
				}
				shown := hashed.Files["weir.yaml"]
				if strings.Contains(shown, "alice") || strings.Contains(shown, "carol") {
					t.Errorf("%s is told in\n%s", what, shown)
				}
				c, err := Unpack(at, hashed)
				if err != nil {
					t.Errorf("%s: hashed, it is not read: %v\n%s\nof\n%s", what, err, shown, text)
					continue
				}
				if got := c.Routes[0].Lists[0].Members.Len(); got != 2 || len(c.Routes[0].Limits[0].Hashed.Rates) != 1 {
					t.Errorf("%s: hashed, %d values and %v; want 2 and one override", what, got, c.Routes[0].Limits[0].Hashed)
				}
			}
		}
	}
}

// indented is the field name with n as its value, four blanks deep.
func indented(name string, n *yaml.Node, t *testing.T) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]*yaml.Node{name: n})
	if err != nil {
		t.Fatal(err)
	}
	return "    " + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n    ") + "\n"
}
