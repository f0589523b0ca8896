package bundle

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

// personal has values of lists in all the ways in which they can be written.
const personal = `keys: {phone: {from: "header:X-Phone", normalize: digits, sensitive: true}, user: {from: "header:X-User", sensitive: true}}
lists:
  blocked: {key: phone, file: blocked.txt, action: deny}
  flow: {key: phone, values: ["+1 555 0101", '1 555 0102', 1-555-0103], action: deny} # +1 555 0109
  block:
    key: user
    values:
      - alice, the first   # stays
      - "bob \"b\""
    action: bypass
  one: {key: user, values: carol, action: bypass}
  offices: {key: client_ip, values: [192.0.2.0/24, 198.51.100.7], action: bypass}
  ours: {key: user, values: "${CONCEALED}", action: bypass}
routes: [{name: a, match: {path: /a}, upstream: echo, lists: [blocked, flow, block, one, offices, ours]}]
`

func bundleOf(main string) Bundle {
	return Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": main, "blocked.txt": "# Bob\n+1 555 0100\n"}}
}

// A concealCase is a configuration whose values are to be hashed: what of it nobody is
// to be told, and what stays in the main file.
type concealCase struct {
	name, text string
	told, kept []string
}

// check conceals it, once more the same way, and what came of that; it returns the
// configuration before and after.
func (w concealCase) check(t *testing.T, at *config.Config) (plain *config.Config, hashed Bundle, c *config.Config) {
	t.Helper()
	b := bundleOf(w.text)
	plain, err := Unpack(at, b)
	if err != nil {
		t.Fatal(err)
	}
	if hashed, err = b.Conceal(plain, nil); err != nil {
		t.Fatal(err)
	}
	for file, text := range hashed.Files {
		for _, told := range w.told {
			if strings.Contains(text, told) {
				t.Errorf("%s: %s tells %s:\n%s", w.name, file, told, text)
			}
		}
	}
	text := hashed.Files["weir.yaml"]
	for _, kept := range w.kept {
		if !strings.Contains(text, kept) {
			t.Errorf("%s: %s is lost:\n%s", w.name, kept, text)
		}
	}
	if c, err = Unpack(at, hashed); err != nil {
		t.Fatalf("%s: %v\n%s", w.name, err, text)
	}
	if again, err := b.Conceal(plain, &hashed); err != nil || !maps.Equal(again.Files, hashed.Files) {
		t.Errorf("%s: the same files, hashed once more: %v\n%v\nwant\n%v", w.name, err, again.Files, hashed.Files)
	}
	if again, err := hashed.Conceal(c, nil); err != nil || !maps.Equal(again.Files, hashed.Files) {
		t.Errorf("%s: what is hashed is hashed again: %v", w.name, err)
	}
	return plain, hashed, c
}

func TestConceal_ListsTheSameAndTellsNobody(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	for name, secret := range map[string]string{"salt": "", "secret": "privacy: {hash_secret: \"${CONCEALED_SECRET}\"}\n"} {
		t.Setenv("CONCEALED_SECRET", "a secret of sixteen characters")
		at := ownConfig(t, small)
		plain, _, c := concealCase{
			name: name, text: secret + personal,
			told: []string{"0100", "0101", "0102", "0103", "Bob", "alice", "bob", "carol", "dave"},
			kept: []string{"192.0.2.0/24", "${CONCEALED}", "# stays", "198.51.100.7"},
		}.check(t, at)
		for i, l := range c.Routes[0].Lists {
			if want := plain.Routes[0].Lists[i].Members.Len(); l.Members.Len() != want {
				t.Errorf("%s: list %s has %d values; want %d", name, l.Name, l.Members.Len(), want)
			}
		}
	}
}

// What is not sensitive is told as it is: a country is no secret, even if the number is that it is of.
func TestConceal_HashesNothingElse(t *testing.T) {
	at := ownConfig(t, small)
	const plain = `keys:
  phone: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}, sensitive: true}
  country: {of: phone, part: country}
  user: "header:X-User"
lists: {banned: {key: country, values: [KP, CU], action: deny}, staff: {key: user, values: [alice], action: bypass}, test: {key: phone, values: ["+8613800138000"], action: bypass}}
routes: [{name: a, match: {path: /a}, upstream: echo, lists: [banned, staff, test], limits: [{key: country, rate: 9/1h, overrides: {US: 90/1h}}]}]
`
	concealCase{name: "plain", text: plain, told: []string{"13800138000"}, kept: []string{"[KP, CU]", "[alice]", "{US: 90/1h}"}}.check(t, at)
	c, err := Unpack(at, bundleOf(plain))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(effective(t, c)); !strings.Contains(text, "KP") || !strings.Contains(text, "alice") || !strings.Contains(text, "US:") || strings.Contains(text, "13800138000") {
		t.Errorf("the effective config is\n%s", text)
	}
	is, err := Unpack(at, bundleOf(strings.Replace(plain, "[KP, CU]", "[KP]", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if changes := config.Compare(c, is); len(changes) != 1 || !strings.Contains(changes[0].Was, "CU") || strings.Contains(changes[0].Is, "not shown") {
		t.Errorf("changes %v; want the countries", changes)
	}
}

func TestConceal_AnotherSecretIsAProblem(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	t.Setenv("CONCEALED_SECRET", "a secret of sixteen characters")
	b := bundleOf("privacy: {hash_secret: \"${CONCEALED_SECRET}\"}\n" + personal)
	c, err := Unpack(ownConfig(t, small), b)
	if err != nil {
		t.Fatal(err)
	}
	hashed, err := b.Conceal(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONCEALED_SECRET", "another secret of sixteen")
	if _, err := Unpack(ownConfig(t, small), hashed); err == nil || !strings.Contains(err.Error(), "blocked.txt:1:1: ") || !strings.Contains(err.Error(), "privacy.previous_secret") {
		t.Errorf("under another secret: %v; want what to do", err)
	}
}

func TestConceal_SaysWhereItCannot(t *testing.T) {
	const shared = "keys: {a: {from: 'header:X-A', sensitive: true}}\nlists:\n  a: {key: a, values: [&x secretive], action: deny}\n  b: {key: a, values: [*x], action: deny}\n" +
		"routes: [{name: a, match: {path: /a}, upstream: echo, lists: [a, b]}]\n"
	b := bundleOf(shared)
	c, err := Unpack(ownConfig(t, small), b)
	if err != nil {
		t.Fatal(err)
	}
	var ps config.Problems
	if _, err := b.Conceal(c, nil); !errors.As(err, &ps) || ps[0].Line != 3 || strings.Contains(err.Error(), "secretive") {
		t.Errorf("Conceal = %v; want the places, and not the value", err)
	}
}

func TestEffective_HashesValuesOfLists(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	c, err := config.Load(write(t, "weir.yaml", personal, "blocked.txt", "+1 555 0100\n"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(effective(t, c))
	for _, told := range []string{"0101", "alice", "carol", "dave"} {
		if strings.Contains(text, told) {
			t.Errorf("the effective config tells %s:\n%s", told, text)
		}
	}
}

// Two configurations are told apart by their lists, and the values are not told.
func TestCompare_TellsNoValuesOfLists(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	at := ownConfig(t, small)
	was, err := Unpack(at, bundleOf(personal))
	if err != nil {
		t.Fatal(err)
	}
	is, err := Unpack(at, bundleOf(strings.Replace(personal, "0102", "0104", 1)))
	if err != nil {
		t.Fatal(err)
	}
	changes := config.Compare(was, is)
	if len(changes) != 1 || changes[0].Name != "flow" || !strings.Contains(changes[0].Is, "3, not shown") || strings.Contains(changes[0].String(), "555") {
		t.Errorf("changes %v; want that of flow, without values", changes)
	}
}
