package bundle

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

const (
	oneSecret   = "a secret of sixteen characters"
	otherSecret = "another secret of sixteen characters"
)

// What a node with one secret packs, the nodes with that secret read, now or as the former one, and nobody else.
func TestSeal_IsReadWithItsSecret(t *testing.T) {
	seal := NewSeal(config.Privacy{HashSecret: oneSecret})
	b := seal.Sign(bundleOf(personal))
	packed := seal.Pack(b)
	for name, c := range map[string]struct {
		privacy config.Privacy
		version string
		want    error
	}{
		"the same":           {config.Privacy{HashSecret: oneSecret}, b.Hash(), nil},
		"the former":         {config.Privacy{HashSecret: otherSecret, Previous: oneSecret}, b.Hash(), nil},
		"the former of none": {config.Privacy{Previous: oneSecret}, b.Hash(), nil},
		"another":            {config.Privacy{HashSecret: otherSecret}, b.Hash(), ErrSecret},
		"none":               {config.Privacy{}, b.Hash(), ErrSecret},
		"another version":    {config.Privacy{HashSecret: oneSecret}, "0" + b.Hash(), ErrSecret},
	} {
		got, err := NewSeal(c.privacy).Open(packed, c.version)
		if !errors.Is(err, c.want) || err == nil && (!maps.Equal(got.Files, b.Files) || got.Main != b.Main || got.Hash() != b.Hash()) {
			t.Errorf("%s: %v, %v; want %v", name, got.Main, err, c.want)
		}
	}
	for i := range packed {
		changed := bytes.Clone(packed)
		changed[i] ^= 1
		if _, err := seal.Open(changed, b.Hash()); err == nil {
			t.Errorf("with byte %d changed it is read", i)
		}
	}
	if again := seal.Pack(b); bytes.Equal(again, packed) {
		t.Error("packed twice, it is the same: who reads both knows that nothing has changed")
	}
}

// Before there is a secret, and for nodes that get it later, what is packed is read by all.
func TestSeal_WithoutASecret(t *testing.T) {
	seal := NewSeal(config.Privacy{})
	b := seal.Sign(bundleOf(small))
	for _, p := range []config.Privacy{{}, {HashSecret: oneSecret}} {
		if got, err := NewSeal(p).Open(seal.Pack(b), b.Hash()); err != nil || !maps.Equal(got.Files, b.Files) || got.Hash() != b.Hash() {
			t.Errorf("with %+v: %v, %v", p, got, err)
		}
	}
	for _, text := range []string{"", "garbage", sealedHead, sealedHead + "x", "\x1f\x8b"} {
		if _, err := seal.Open([]byte(text), ""); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// A version is the same for the same contents, another for others, and tells them only to who has the secret.
func TestSeal_Versions(t *testing.T) {
	versions := map[string]string{}
	for _, secret := range []string{"", oneSecret, otherSecret} {
		for name, b := range map[string]Bundle{
			"small": bundleOf(small), "personal": bundleOf(personal),
			"shifted": {Main: "weir.yaml", Files: map[string]string{"weir.yaml": small, "blocked.tx": "t# Bob\n+1 555 0100\n", "plans.txt": "erin=pro\n"}},
		} {
			seal := NewSeal(config.Privacy{HashSecret: secret})
			version := seal.Sign(b).Hash()
			renamed := Bundle{Main: "other.yaml", Files: b.Others()}
			renamed.Files["other.yaml"] = b.Files[b.Main]
			if again := NewSeal(config.Privacy{HashSecret: secret, Previous: "former"}).Sign(renamed).Hash(); again != version {
				t.Errorf("%s: %s and %s", name, version, again)
			}
			if other, twice := versions[version]; twice {
				t.Errorf("%s has the version of %s", name, other)
			}
			versions[version] = name + " under " + secret
		}
	}
}

func TestSeal_SaysWhatIsExposed(t *testing.T) {
	t.Setenv("CONCEALED", "dave")
	for text, want := range map[string][]string{
		personal: {"blocked.txt", "weir.yaml", "plans.txt"},
		small:    nil,
		strings.ReplaceAll(personal, "sensitive: true", "sensitive: false"): nil,
	} {
		c := unpacked(t, ownConfig(t, small), bundleOf(text))
		got := NewSeal(config.Privacy{}).Exposed(c)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("exposed: %q; want %q", got, want)
		}
		if got := NewSeal(config.Privacy{HashSecret: oneSecret}).Exposed(c); got != nil {
			t.Errorf("exposed in spite of a secret: %q", got)
		}
	}
}
