package key

import (
	"errors"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestTokens_Bearer(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	good := signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil)
	for _, c := range []struct {
		fields []string
		want   error
	}{
		{[]string{"Bearer " + good}, nil},
		{[]string{"bearer " + good}, nil},
		{[]string{"bearer  " + good}, ErrAmbiguous},
		{[]string{"Bearer\t" + good}, ErrAmbiguous},
		{[]string{"Bearer \t" + good}, ErrAmbiguous},
		{[]string{"Bearer " + good + " "}, ErrAmbiguous},
		{[]string{" Bearer " + good}, ErrAmbiguous},
		{[]string{"Bearer:" + good}, ErrAmbiguous},
		{[]string{"Bearer: " + good}, ErrAmbiguous},
		{[]string{"Bearer " + good + " x"}, ErrAmbiguous},
		{[]string{"Bearer \"" + good + "\""}, ErrAmbiguous},
		{[]string{"Bearer\u00a0" + good}, ErrAmbiguous},
		{[]string{"Basic  YTpi"}, ErrAmbiguous},
		{[]string{"Basic YTpi, Bearer " + good}, ErrAmbiguous},
		{[]string{"Foo bearer " + good}, ErrAmbiguous},
		{[]string{"Digest username=\"a\", realm=\"b\""}, ErrMissing},
		{nil, ErrMissing},
		{[]string{""}, ErrMissing},
		{[]string{"Basic YTpi"}, ErrMissing},
		{[]string{good}, ErrAmbiguous},
		{[]string{"Bearer"}, ErrAmbiguous},
		{[]string{"Bearer "}, ErrAmbiguous},
		{[]string{"Bearer " + good + ", Bearer " + good}, ErrAmbiguous},
		{[]string{"Bearer " + good, "Bearer " + good}, ErrAmbiguous},
		{[]string{"Basic YTpi", "Bearer " + good}, ErrAmbiguous},
	} {
		if _, err := extract(claimOf(tokens, "sub"), sends("", "").with("Authorization", c.fields...)); !errors.Is(err, c.want) {
			t.Errorf("%q: %v; want %v", c.fields, err, c.want)
		}
	}
}
