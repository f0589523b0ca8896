package bundle

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config"
)

// personal has values of sensitive keys in all the ways in which they can be written.
const personal = `keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}, user: {from: "header:X-User", sensitive: true}, country: {of: number, part: country}, number: {from: "header:X-Number", normalize: {as: e164, default_region: CN}, sensitive: true}}
lists:
  blocked: {key: phone, file: blocked.txt, action: deny}
  flow: {key: phone, values: ["+1 555 0101", '1 555 0102', 1-555-0103], action: deny}
  block:
    key: user
    values:
      - alice, the first
      - "bob \"b\""
    action: bypass
  one: {key: user, values: carol, action: bypass}
  offices: {key: client_ip, values: [192.0.2.0/24, 198.51.100.7], action: bypass}
  banned: {key: country, values: [KP, CU], action: deny}
  ours: {key: user, values: "${CONCEALED}", action: bypass}
routes:
  - name: a
    match: {path: /a}
    upstream: echo
    lists: [blocked, flow, block, one, offices, ours, banned]
    limits:
      - {name: flow, key: phone, rate: 1/1h, overrides: {"+1 555 0105": 2/1h, 1-555-0106: [3/1h]}}
      - name: user
        key: user
        rate: 1/1h
        overrides: {dora: 2/1h}
        plan: {list: plans.txt}
        plans: {pro: 2/1h}
      - {name: ip, key: client_ip, rate: 9/1h, overrides: {192.0.2.1: 10/1h}}
`

func bundleOf(main string) Bundle {
	return Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": main, "blocked.txt": "# Bob\n+1 555 0100\n", "plans.txt": "erin=pro\n"}}
}

// personsOf are what of personal nobody may be shown.
func personsOf() []string {
	return []string{"0100", "0101", "0102", "0103", "0105", "0106", "Bob", "alice", "bob", "carol", "dave", "dora", "erin"}
}

// Lines are those of the parser, for which more than a newline ends one.
func TestShown_OtherEndsOfLines(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	text := "# one\n# two\n" + personal + "  - {match: {path: /b}, upstream: echo, limits: [{name: u, key: user, rate: 1/1h, overrides: {dora: 2/1h}}]}"
	for _, end := range []string{"\r\n", "\r", "\u0085", "\u2028"} {
		for _, main := range []string{strings.ReplaceAll(text, "\n", end), strings.Replace(text, "\n", end, 2)} {
			b := bundleOf(main)
			c := unpacked(t, ownConfig(t, small), b)
			shown := b.Shown(c, []byte("once")).Files["weir.yaml"]
			if !strings.Contains(shown, "[KP, CU]") || strings.Count(shown, end) != strings.Count(main, end) {
				t.Errorf("with %q it shows %q", end, shown)
			}
			for _, told := range personsOf() {
				if strings.Contains(shown, told) {
					t.Errorf("with %q it tells %s", end, told)
				}
			}
		}
	}
}

// To show a long list takes memory, and so time, for its length, not for its square: 14 GB if the file is split for each value.
func TestShown_LongList(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	const values = 30_000
	var list strings.Builder
	for i := range values {
		fmt.Fprintf(&list, "\n      - \"+1555%07d\"", i)
	}
	b := bundleOf(strings.Replace(personal, "[\"+1 555 0101\", '1 555 0102', 1-555-0103]", list.String(), 1))
	b.Files["weir.yaml"] = strings.NewReplacer("  flow: {key: phone, values: ", "  flow:\n    key: phone\n    action: deny\n    values:", ", action: deny}\n  block:", "\n  block:").Replace(b.Files["weir.yaml"])
	c := unpacked(t, ownConfig(t, small), b)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	shown := b.Shown(c, []byte("once")).Files["weir.yaml"]
	runtime.ReadMemStats(&after)
	if strings.Contains(shown, "+1555") || strings.Count(shown, "not shown") < values {
		t.Error("it shows values of a sensitive key")
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<30 {
		t.Errorf("it took %d MB of memory", took>>20)
	}
}

func TestShown_WithoutPersons(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	b := bundleOf(personal)
	c := unpacked(t, ownConfig(t, small), b)
	shown := b.Shown(c, []byte("once"))
	for name, text := range shown.Files {
		for _, told := range personsOf() {
			if strings.Contains(text, told) {
				t.Errorf("%s tells %s:\n%s", name, told, text)
			}
		}
		if got, want := strings.Count(text, "\n"), strings.Count(b.Files[name], "\n"); got != want {
			t.Errorf("%s has %d lines; want %d", name, got, want)
		}
	}
	for _, kept := range []string{"192.0.2.0/24", "[KP, CU]", "${CONCEALED}", "192.0.2.1: 10/1h", "plans: {pro: 2/1h}", "rate: 9/1h"} {
		if !strings.Contains(shown.Files["weir.yaml"], kept) {
			t.Errorf("%s is not shown:\n%s", kept, shown.Files["weir.yaml"])
		}
	}
	if again := b.Shown(c, []byte("once")); !maps.Equal(again.Files, shown.Files) {
		t.Error("shown once more it is another")
	}
	if other := b.Shown(c, []byte("twice")); other.Files["blocked.txt"] == shown.Files["blocked.txt"] {
		t.Error("under another secret the hashes are the same")
	}
}

// awkwardValues are values that YAML writes in several ways, some of which look like
// something else.
func awkwardValues() []string {
	return []string{
		"alice", "it's alice", `say "alice"`, "alice, bob", "alice: bob", "alice #1", "日本 alice", "alice\\bob", "alice'", `"alice"`, "[alice]", "{alice}",
		"- alice", "&alice", "*alice", "!alice", "%alice", "@alice", "`alice`", "alice=bob", "alice]", "alice}", "alice's \"own\"", "Ünïcödé alice", "\U0001f600 alice",
	}
}

// However a value of a list, or the name of an override, is written, it is not shown.
func TestShown_InEveryStyleOfYAML(t *testing.T) {
	at := ownConfig(t, small)
	for _, value := range awkwardValues() {
		for name, style := range map[string]yaml.Style{"plain": 0, "single": yaml.SingleQuotedStyle, "double": yaml.DoubleQuotedStyle, "literal": yaml.LiteralStyle, "folded": yaml.FoldedStyle} {
			for _, around := range []yaml.Style{0, yaml.FlowStyle} {
				written := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: style}
				after := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "carol"}
				text := "keys: {user: {from: 'query:user', sensitive: true}}\nlists:\n  l:\n    key: user\n    action: deny\n" + indented("values", &yaml.Node{Kind: yaml.SequenceNode, Style: around, Content: []*yaml.Node{written, after}}, t) +
					"routes:\n- name: a\n  match: {path: /a}\n  upstream: echo\n  lists: [l]\n  limits:\n  - name: n\n    key: user\n    rate: 1/1h\n" +
					indented("overrides", &yaml.Node{Kind: yaml.MappingNode, Style: around, Content: []*yaml.Node{written, {Kind: yaml.ScalarNode, Value: "2/1h"}}}, t)
				mustHide(t, at, fmt.Sprintf("%q, %s, %v", value, name, around == yaml.FlowStyle), text)
			}
		}
	}
	mustHide(t, at, "an alias", "keys: {a: {from: 'header:X-A', sensitive: true}}\nlists:\n  a: {key: a, values: [&x alice], action: deny}\n  b: {key: a, values: [*x], action: deny}\n"+
		"routes: [{name: a, match: {path: /a}, upstream: echo, lists: [a, b]}]\n")
	mustHide(t, at, "several lines", "keys: {a: {from: 'header:X-A', sensitive: true}}\nlists:\n  a: {key: a, values: [\"the one\n    alice\"], action: deny}\n"+
		"routes: [{name: a, match: {path: /a}, upstream: echo, lists: [a]}]\n")
}

// mustHide checks that text is a configuration, and shows neither alice nor carol.
func mustHide(t *testing.T, at *config.Config, what, text string) {
	t.Helper()
	b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}
	c, err := Unpack(at, b)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, text)
	}
	if shown := b.Shown(c, nil).Files["weir.yaml"]; strings.Contains(shown, "alice") || strings.Contains(shown, "carol") {
		t.Errorf("%s is told in\n%s", what, shown)
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

// What people are shown of a running configuration has no value of a sensitive key either, and says so where they were.
func TestEffective_WithoutPersons(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	b := bundleOf(personal)
	c := unpacked(t, ownConfig(t, small), b)
	text := string(c.Effective())
	for _, told := range personsOf() {
		if strings.Contains(text, told) {
			t.Errorf("the effective config tells %s:\n%s", told, text)
		}
	}
	for _, kept := range []string{"values: [] # 3, not shown\n", "overrides: {} # 2, not shown\n", "overrides: {} # 1, not shown\n", "192.0.2.0/24", "KP", "192.0.2.1:"} {
		if !strings.Contains(text, kept) {
			t.Errorf("the effective config does not say %q:\n%s", kept, text)
		}
	}
	if _, err := Unpack(ownConfig(t, small), bundleOf(text)); err != nil {
		t.Errorf("the effective config, loaded: %v", err)
	}
}

// Two configurations are told apart by their lists and overrides, and the values are not told.
func TestCompare_WithoutPersons(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	at := ownConfig(t, small)
	was := unpacked(t, at, bundleOf(personal))
	for from, name := range map[string]string{"1 555 0102": "flow", "1-555-0106": "a.flow", "dora": "a.user", "2/1h, 1-555": "a.flow"} {
		is := unpacked(t, at, bundleOf(strings.Replace(personal, from, "7"+from, 1)))
		changes := config.Compare(was, is)
		told := fmt.Sprint(changes)
		if len(changes) != 1 || changes[0].Name != name || !strings.Contains(told, "not shown") || slices.ContainsFunc(personsOf(), func(p string) bool { return strings.Contains(told, p) }) {
			t.Errorf("%s: changes %v; want that of %s, without values", from, changes, name)
		}
	}
	is := unpacked(t, at, bundleOf(strings.Replace(personal, "[KP, CU]", "[KP]", 1)))
	if changes := config.Compare(was, is); len(changes) != 1 || !strings.Contains(changes[0].Was, "CU") || strings.Contains(changes[0].Is, "not shown") {
		t.Errorf("changes %v; want the countries", changes)
	}
}
