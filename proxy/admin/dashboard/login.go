package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
)

// maxForm is the maximum size of a form, in bytes: the largest is a request to explain.
const maxForm = 1 << 20

type sessionKey struct{}

// sessionOf returns the session of a request that has passed inside.
func sessionOf(r *http.Request) session {
	s, _ := r.Context().Value(sessionKey{}).(session)
	return s
}

// inside admits only logged-in operators, and only forms of this dashboard.
func (d *dashboard) inside(next http.HandlerFunc) http.HandlerFunc {
	return d.known(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !d.ours(w, r, sessionOf(r).id) {
			return
		}
		next(w, r)
	})
}

// known admits only logged-in operators. If no token is configured, it admits all requests
// that the admin handler admits, as for the API. Forms are checked separately.
func (d *dashboard) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, found := d.visitor(w, r)
		if !found {
			d.sendToLogin(w, r)
			return
		}
		s.Address = r.RemoteAddr
		next(w, r.WithContext(admin.WithOperator(context.WithValue(r.Context(), sessionKey{}, s), s.Operator)))
	}
}

// visitor returns the session of r.
func (d *dashboard) visitor(w http.ResponseWriter, r *http.Request) (session, bool) {
	id := cookie(r)
	if d.Guarded() {
		return d.sessions.find(id, time.Now())
	}
	if id == "" {
		id = rand.Text()
		setCookie(w, r, id)
	}
	return session{Operator: admin.Operator{Name: admin.Local, Role: admin.Write}, id: id}, true
}

// ours reports whether a form was created for the browser that sends it; otherwise it has
// sent a response.
func (d *dashboard) ours(w http.ResponseWriter, r *http.Request, id string) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.show(w, r, view{name: "problem", title: "Too long", status: http.StatusRequestEntityTooLarge, data: "the form cannot be read: " + err.Error()})
		return false
	}
	if !d.made(r.PostForm.Get("form"), id) {
		d.show(w, r, view{name: "problem", title: "Not accepted", status: http.StatusForbidden, data: foreignForm})
		return false
	}
	return true
}

// foreignForm is the error for forms of another session.
const foreignForm = "the form belongs to another session, or weir was restarted; reload the page and try again"

// made reports whether a form's token is that of the browser with this cookie.
func (d *dashboard) made(token, id string) bool {
	return hmac.Equal([]byte(token), []byte(d.sessions.formToken(id)))
}

// sendToLogin redirects to the login page; for the live part of a page, the whole page is
// redirected.
func (d *dashboard) sendToLogin(w http.ResponseWriter, r *http.Request) {
	at := "/dashboard/login"
	switch {
	case r.Header.Get("HX-Request") != "":
		w.Header().Set("HX-Redirect", at)
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.Method != http.MethodGet:
	case r.URL.Path != "/":
		at += "?then=" + url.QueryEscape(r.URL.Path)
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// A loginView is the login form.
type loginView struct {
	Then  string // page to open afterwards
	Wrong bool   // the token was invalid
}

func (d *dashboard) loginForm(w http.ResponseWriter, r *http.Request) {
	if !d.Guarded() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	id := cookie(r)
	if id == "" {
		id = rand.Text()
		setCookie(w, r, id)
	}
	d.showLogin(w, r, id, loginView{Then: r.URL.Query().Get("then")})
}

func (d *dashboard) showLogin(w http.ResponseWriter, r *http.Request, id string, v loginView) {
	status := http.StatusOK
	if v.Wrong {
		status = http.StatusUnauthorized
	}
	r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, session{id: id}))
	d.show(w, r, view{name: "login", title: "Log in", status: status, data: v})
}

// login creates a session with a new id for a valid token, so that a planted session id is
// useless (session fixation).
func (d *dashboard) login(w http.ResponseWriter, r *http.Request) {
	id := cookie(r)
	if !d.ours(w, r, id) {
		return
	}
	then := r.PostForm.Get("then")
	who, known := d.Authenticate(strings.TrimSpace(r.PostForm.Get("token")))
	if !known {
		d.showLogin(w, r, id, loginView{Then: then, Wrong: true})
		return
	}
	d.sessions.end(id)
	setCookie(w, r, d.sessions.begin(session{Operator: who, Login: true}, time.Now()).id)
	if !strings.HasPrefix(then, "/dashboard/") {
		then = "/"
	}
	http.Redirect(w, r, then, http.StatusSeeOther)
}

func (d *dashboard) logout(w http.ResponseWriter, r *http.Request) {
	id := cookie(r)
	if !d.ours(w, r, id) {
		return
	}
	d.sessions.end(id)
	setCookie(w, r, "")
	http.Redirect(w, r, "/dashboard/login", http.StatusSeeOther)
}
