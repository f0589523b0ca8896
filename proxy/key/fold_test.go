package key

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

// phpName is the variable that PHP registers for a name (php_register_variable_ex):
// the first step of its path, "" if there is none.
func phpName(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.TrimLeft(name, " ?") // the sign in a query alone
	for i := range len(name) {
		if name[i] == '[' {
			if !strings.Contains(name[i:], "]") {
				return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(name)
			}
			name = name[:i]
			break
		}
	}
	return strings.NewReplacer(" ", "_", ".", "_").Replace(name)
}

// qsName is the property that qs makes of a name: what stands before the first
// closed bracket, or in it when nothing does.
func qsName(name string) string {
	for i := 0; i < len(name); i++ {
		if name[i] != '[' {
			continue
		}
		end := strings.IndexAny(name[i+1:], "[]")
		if end < 0 || name[i+1+end] != ']' {
			continue
		}
		if i > 0 {
			return name[:i]
		}
		if inner := name[1 : 1+end]; inner != "" {
			return inner
		}
		return "0"
	}
	return name
}

// oldRackName is what Rack before 3 takes for the first step: brackets in front are
// skipped, and so are closing ones behind.
func oldRackName(name string) string {
	name = strings.TrimLeft(name, "[]")
	if i := strings.IndexAny(name, "[]"); i >= 0 {
		name = name[:i]
	}
	return name
}

// rackName is the same for Rack 3.
func rackName(name string) string {
	if i := strings.IndexByte(name, '['); i > 0 {
		return name[:i]
	}
	return name
}

func springName(name string) string { return strings.TrimPrefix(name, "!") }

func cName(name string) string { name, _, _ = strings.Cut(name, "\x00"); return name }

func readers() map[string]func(string) string {
	return map[string]func(string) string{
		"PHP": phpName, "qs": qsName, "Rack 2": oldRackName, "Rack 3": rackName, "Spring": springName, "C": cName,
		"ASP.NET": strings.ToLower, "what trims": strings.TrimSpace,
	}
}

// misread fails the test if some server takes name for want and Names does not say
// so.
func misread(t *testing.T, name, want string) {
	t.Helper()
	if name == want {
		return
	}
	for reader, read := range readers() {
		if read(name) == want && len(NameSet{}.With(want).Confused(nil, name)) == 0 {
			t.Fatalf("%s reads %q as %s, which passes", reader, name, want)
		}
	}
}

// Names made of the pieces that servers fold are either the name itself, or told
// as one that may be taken for it.
func TestNames_WhatAnyServerFoldsIsConfused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"phone", "phone", "user", "id", "_", ".", " ", "[", "]", "[]", "[x]", "\x00", "!", "P", "\t", "0", "é"}
	met, names := 0, rounds.Of(10_000)
	for range names {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		name := b.String()
		for _, want := range []string{"phone", "user_id", "phone_", "user"} {
			for _, read := range readers() {
				if name != want && read(name) == want {
					met++
				}
			}
			misread(t, name, want)
		}
	}
	if met < names/20 {
		t.Errorf("only %d names were folded by any server", met)
	}
}

func TestNames_OthersAreNotConfused(t *testing.T) {
	for want, others := range map[string][]string{
		"phone":         {"phone", "phones", "phone2", "telephone", "phone_", "_phone", "phone-", "ph.one", "x[phone]", "x.phone", "", "[]", "é"},
		"user_id":       {"user", "id", "user-id", "userid", "user_ids", "user[name]", "a.user.id"},
		"filter[phone]": {"filter[name]", "filter[phones]", "phone", "filters", "filter_phone"},
		"connect.sid":   {"connect", "sid", "connect-sid"},
	} {
		for _, name := range others {
			if got := (NameSet{}.With(want).Confused(nil, name)); len(got) > 0 {
				t.Errorf("%q is taken for %s", name, want)
			}
		}
	}
}

func TestNames_SeveralAtOnce(t *testing.T) {
	n := NameSet{}.With("phone").With("user.id").With("user_id").With("phone")
	if len(n) != 3 {
		t.Errorf("%d names; want each once", len(n))
	}
	if got := n.Confused(nil, "USER_ID"); !slices.Equal(got, []string{"user.id", "user_id"}) {
		t.Errorf("USER_ID is taken for %q", got)
	}
	if got := n.Confused([]string{"x"}, "phone[a]"); !slices.Equal(got, []string{"x", "phone"}) {
		t.Errorf("phone[a] is taken for %q", got)
	}
}

func TestFoldHeader(t *testing.T) {
	for name, want := range map[string]string{"X-Phone": "X_PHONE", "x_phone": "X_PHONE", "X.P~h!1": "X_P_H_1", "": ""} {
		if got := FoldHeader(name); got != want {
			t.Errorf("FoldHeader(%q) = %q; want %q", name, got, want)
		}
	}
	for name, want := range map[string]bool{"X-Phone": true, "X2": true, "X_Phone": false, "X.Phone": false, "X~": false} {
		if got := IsPlainHeader(name); got != want {
			t.Errorf("IsPlainHeader(%q) = %v", name, got)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"phone", "phone[]", "[phone]", " phone", "phone\x00x", "user.id", "user[id", "%70hone", "a[b][c]d", "\u212a", "!x"} {
		f.Add(name, "phone")
		f.Add(name, "user_id")
	}
	f.Fuzz(func(t *testing.T, name, want string) {
		if want == "" || !printable(want) || strings.ContainsAny(want, "[].! ") || strings.TrimSpace(want) != want {
			return
		}
		misread(t, name, want)
	})
}

// What requests usually carry is looked through without allocating.
func TestNames_CommonNamesCostNothing(t *testing.T) {
	n := NameSet{}.With("phone").With("user_id")
	if got := rounds.Allocations(100, func() {
		for _, name := range []string{"phone", "page", "utm_source", "a.b-c", "X"} {
			n.Confused(nil, name)
		}
	}); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
