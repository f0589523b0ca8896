package bundle

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// favoured has values with rates of their own in all the ways in which they can be
// written.
const favoured = `keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}, user: {from: "header:X-User", sensitive: true}}
routes:
  - name: a
    match: {path: /a}
    upstream: echo
    limits:
      - {name: flow, key: phone, rate: 1/1h, overrides: {"+1 555 0101": 2/1h, 1-555-0102: [3/1h], '1 555 0103' : 4/1h}} # stays
      - name: block
        key: user
        rate: 1/1h
        overrides:
          alice@example.com: 5/1h
          "bob \"b\"": [6/1h, 60/1d]
      - {name: ip, key: client_ip, rate: 9/1h, overrides: {192.0.2.1: 10/1h}}
`

func TestConceal_OverridesGoByTheSameRates(t *testing.T) {
	for name, secret := range map[string]string{"salt": "", "secret": "privacy: {hash_secret: \"${CONCEALED_SECRET}\"}\n"} {
		t.Setenv("CONCEALED_SECRET", "a secret of sixteen characters")
		_, hashed, c := concealCase{
			name: name, text: secret + favoured,
			told: []string{"0101", "0102", "0103", "alice", "bob"},
			kept: []string{"192.0.2.1: 10/1h", "[6/1h, 60/1d]", "# stays"},
		}.check(t, ownConfig(t, small))
		for i, want := range []int{3, 2, 0} {
			l := c.Routes[0].Limits[i]
			if got := l.Hashed; want > 0 && (got == nil || got.Keys.Len() != want || len(got.Rates) != want) || want == 0 && (got != nil || len(l.Overrides) != 1) {
				t.Errorf("%s: limit %s has %v; want %d hashed", name, l.Name, got, want)
			}
		}
		if secret == "" {
			continue
		}
		t.Setenv("CONCEALED_SECRET", "another secret of sixteen")
		if _, err := Unpack(ownConfig(t, small), hashed); err == nil || !strings.Contains(err.Error(), "weir.yaml:8:58: ") || !strings.Contains(err.Error(), "privacy.previous_secret") {
			t.Errorf("under another secret: %v; want where, and what to do", err)
		}
	}
}

func TestConceal_SaysWhereItCannotHashAnOverride(t *testing.T) {
	b := bundleOf("keys: {a: {from: 'header:X-A', sensitive: true}}\nroutes: [{name: a, match: {path: /a}, upstream: echo, limits: [{key: a, rate: 1/1h, overrides: {&x secretive: 2/1h}}]}]\n")
	c, err := Unpack(ownConfig(t, small), b)
	if err != nil {
		t.Fatal(err)
	}
	var ps config.Problems
	if _, err := b.Conceal(c, nil); !errors.As(err, &ps) || ps[0].Line != 2 || strings.Contains(err.Error(), "secretive") {
		t.Errorf("Conceal = %v; want the place, and not the value", err)
	}
}

// What people are shown tells no value, and does the same when it is loaded.
func TestEffective_HashesOverrides(t *testing.T) {
	c, err := config.Load(write(t, "weir.yaml", favoured))
	if err != nil {
		t.Fatal(err)
	}
	text := string(effective(t, c))
	for _, told := range []string{"0101", "alice", "bob"} {
		if strings.Contains(text, told) {
			t.Errorf("the effective config tells %s:\n%s", told, text)
		}
	}
	again, err := config.Load(write(t, "weir.yaml", text))
	if err != nil || again.Routes[0].Limits[0].Hashed.Keys.Len() != 3 {
		t.Errorf("the effective config, loaded: %v", err)
	}
}

func TestCompare_TellsNoOverrides(t *testing.T) {
	at := ownConfig(t, small)
	was, err := Unpack(at, bundleOf(favoured))
	if err != nil {
		t.Fatal(err)
	}
	for from, name := range map[string]string{"1-555-0102": "a.flow", "alice@": "a.block", "5/1h": "a.block"} {
		is, err := Unpack(at, bundleOf(strings.Replace(favoured, from, "7"+from, 1)))
		if err != nil {
			t.Fatal(err)
		}
		changes := config.Compare(was, is)
		if len(changes) != 1 || changes[0].Name != name || !strings.Contains(changes[0].Is, "not shown") || strings.Contains(changes[0].String(), "555") || strings.Contains(changes[0].String(), "alice") {
			t.Errorf("%s: changes %v; want that of %s, without values", from, changes, name)
		}
	}
	if changes := config.Compare(was, was); len(changes) > 0 {
		t.Errorf("changes %v; want none", changes)
	}
}

// A list of plans is pushed with the file that names it, without the values of a sensitive key.
func TestConceal_KeepsPlansOfHashedKeys(t *testing.T) {
	path := write(t, "weir.yaml", `keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}, user: "header:X-User"}
limits: {flow: {key: phone, rate: 1/1h, plan: {list: lists/phones}, plans: {pro: 2/1h}}}
routes:
  - name: a
    match: {path: /a}
    upstream: echo
    limits:
      - flow
      - {name: user, key: user, rate: 1/1h, plan: {list: lists/users}, plans: {pro: 2/1h}}
`, "lists/phones", "1 555 0101=pro # Bob\n", "lists/users", "alice=pro\n")
	b, err := Pack(path)
	if err != nil {
		t.Fatal(err)
	}
	at := ownConfig(t, small)
	c, err := Unpack(at, b)
	if err != nil {
		t.Fatal(err)
	}
	hashed, err := b.Conceal(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := hashed.Files["lists/phones"]; strings.Contains(text, "0101") || strings.Contains(text, "Bob") || !strings.Contains(text, "=pro\n") || hashed.Files["lists/users"] != "alice=pro\n" {
		t.Errorf("pushed %q; want hashes of phones with their plans", hashed.Files)
	}
	c, err = Unpack(at, hashed)
	if err != nil {
		t.Fatal(err)
	}
	for i, from := range []string{"X-Phone: (1) 555-0101", "X-User: alice"} {
		var v key.Value
		l := c.Routes[0].Limits[i]
		if err := l.Key.Extract(headerLine(from), &v); err != nil || l.Plan.List.Name(&v) != "pro" {
			t.Errorf("%s has the plan %q, %v; want pro", from, l.Plan.List.Name(&v), err)
		}
	}
}

// A headerLine is a request of one header field.
type headerLine string

func (h headerLine) Header(name string) []string {
	if value, ok := strings.CutPrefix(string(h), name+": "); ok {
		return []string{value}
	}
	return nil
}
func (headerLine) Query(string) []string    { return nil }
func (headerLine) Confused(key.Origin) bool { return false }
func (headerLine) Param(string) string      { return "" }
func (headerLine) Client() netip.Prefix     { return netip.Prefix{} }
