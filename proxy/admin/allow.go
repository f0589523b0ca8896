package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// An allowance is the hash of a token, with its operator.
type allowance struct {
	hash [sha256.Size]byte
	Operator
}

// allowances returns those of all tokens. If there are none, programs on this machine need no
// token.
func (o Options) allowances() []allowance {
	var all []allowance
	if o.Token != "" {
		all = append(all, allowance{sha256.Sum256([]byte(o.Token)), Operator{Name: Admin, Role: Write}})
	}
	for _, t := range o.Tokens {
		all = append(all, allowance{sha256.Sum256([]byte(t.Text)), Operator{Name: t.Name, Role: t.Role}})
	}
	return all
}

// Guarded reports whether a token is required.
func (o Options) Guarded() bool { return len(o.allowances()) > 0 }

// Authenticate returns the operator of a token.
func (o Options) Authenticate(token string) (who Operator, known bool) {
	return operator(o.allowances(), token)
}

// operator returns the operator of a token. It takes the same time for all tokens, valid or not.
func operator(all []allowance, token string) (o Operator, known bool) {
	got := sha256.Sum256([]byte(token))
	for _, a := range all {
		if subtle.ConstantTimeCompare(got[:], a.hash[:]) == 1 {
			o, known = a.Operator, true
		}
	}
	return o, known
}

// allow returns a middleware that requires a token of an operator with that role; without
// configured tokens it allows all requests. The next handler finds the operator by OperatorOf.
func (o Options) allow(role Role) func(http.Handler) http.Handler {
	all := o.allowances()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who := Operator{Name: Local, Role: Write}
			if len(all) > 0 {
				token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
				known := false
				if who, known = operator(all, token); !found || !known {
					w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
					problem(w, http.StatusUnauthorized, "send the admin token as Authorization: Bearer TOKEN")
					return
				}
			}
			if role == Write && who.Role != Write {
				problem(w, http.StatusForbidden, "the token of "+who.Name+" may only read; use one with role: write")
				return
			}
			who.Address = r.RemoteAddr
			next.ServeHTTP(w, r.WithContext(WithOperator(r.Context(), who)))
		})
	}
}
