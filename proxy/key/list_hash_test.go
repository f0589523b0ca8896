package key

import (
	"strings"
	"testing"
)

const plainList = "# Bob's own\n138 0013 8000\n+86-139-0013-9000 # Ann's\n"

func TestPepper_HashedListHasWhatThePlainOneHas(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	secret, other := []byte("sixteen characters and more"), []byte("another one that is as long")
	for name, p := range map[string]Pepper{"secret": NewPepper(secret), "salt": Salt([]byte("0123456789abcdef"))} {
		text := p.HashList(phone, plainList)
		for _, told := range []string{"138", "139", "Bob", "Ann"} {
			if strings.Contains(strings.SplitN(text, "\n", 2)[1], told+"0013") || strings.Contains(text, "Bob") {
				t.Errorf("%s: %q tells %s", name, text, told)
			}
		}
		if again := p.HashList(phone, text); again != text {
			t.Errorf("%s: hashed twice: %q; want %q", name, again, text)
		}
		l, problems := ParseList(phone, text, other, secret)
		if len(problems) > 0 || l.Len() != 2 {
			t.Fatalf("%s: %d values, %v", name, l.Len(), problems)
		}
		for number, want := range map[string]bool{"+86 13800138000": true, "008613900139000": true, "13800138001": false} {
			if got := has(t, l, phone, header(number)); got != want {
				t.Errorf("%s: %s: %v; want %v", name, number, got, want)
			}
		}
	}
}

func TestPepper_ASecretThatIsNotKnownIsAProblem(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	text := NewPepper([]byte("sixteen characters and more")).HashList(phone, plainList)
	if _, problems := ParseList(phone, text, []byte("another one that is as long")); len(problems) == 0 || problems[0].Line != 1 || !strings.Contains(problems[0].Err.Error(), "privacy.previous_secret") {
		t.Errorf("problems %v; want that the secret is not known", problems)
	}
	if _, problems := ParseList(phone, Salt(nil).HashList(phone, plainList)+"+8613800138000\n"); len(problems) != 1 {
		t.Errorf("problems %v; want that a plain value stands among hashed ones", problems)
	}
}

func TestPepper_OneValue(t *testing.T) {
	phone := phoneAt(t, "header:X-Phone")
	p := Salt([]byte("0123456789abcdef"))
	one, err := p.HashValue(phone, "138 0013 8000")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.HashValue(phone, one); err != nil || again != one {
		t.Errorf("hashed twice: %q, %v; want %q", again, err, one)
	}
	if found, ok := SaltOf("lists: {a: {values: [\"" + one + "\"]}}\n"); !ok || found.head != p.head {
		t.Errorf("salt %q, %v; want %q", found.head, ok, p.head)
	}
	if _, ok := SaltOf(NewPepper([]byte("secret")).HashList(phone, plainList)); ok {
		t.Error("a list that is hashed under a secret has a salt")
	}
	l, problems := ParseList(phone, one+"\n+8613900139000\n")
	if len(problems) > 0 || l.Len() != 2 || !has(t, l, phone, header("+86 13800138000")) || !has(t, l, phone, header("13900139000")) {
		t.Errorf("%d values, %v; want a hashed one beside a plain one", l.Len(), problems)
	}
}

// Networks cannot be hashed: what is in them could not be found any more.
func TestSpec_Conceals(t *testing.T) {
	if of("client_ip").CanHash() || !of("header:X-User").CanHash() {
		t.Error("addresses are hashed, or users are not")
	}
}
