package dashboard

import (
	"crypto/sha256"
	"crypto/subtle"

	"github.com/weir-proxy/weir/proxy/admin"
)

// tokenWanted reports whether one has to log in.
func (d *dashboard) tokenWanted() bool { return d.Token != "" || len(d.Tokens) > 0 }

// recognise is whose token that is. All tokens are compared, so that the time it takes
// tells nothing of which is near.
func (d *dashboard) recognise(text string) (who session, known bool) {
	tokens := d.Tokens
	if d.Token != "" {
		tokens = append([]admin.Token{{Name: admin.Admin, Text: d.Token, Role: admin.Write}}, tokens...)
	}
	got := sha256.Sum256([]byte(text))
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t.Text))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			who, known = session{Name: t.Name, Write: t.Role == admin.Write, Login: true}, true
		}
	}
	return who, known
}
