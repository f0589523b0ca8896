// Command challenge signs the tokens that a limit with step_up accepts, for clients that have solved a CAPTCHA of
// Cloudflare Turnstile, hCaptcha or reCAPTCHA, which all verify solutions in this way. It is an example: a page shows the
// CAPTCHA, posts its response and the number here, and repeats its request to Weir with the token in X-Challenge-Token.
//
// CHALLENGE_SECRET is the secret under jwt of the step_up, CAPTCHA_SECRET that of the CAPTCHA, CAPTCHA_URL where solutions
// are verified, and LISTEN the address of this program.
package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

func main() {
	l, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening on ", l.Addr())
	log.Fatal(http.Serve(l, http.HandlerFunc(solved)))
}

// solved answers with a token for the number of the client, if the client has solved the CAPTCHA.
func solved(w http.ResponseWriter, r *http.Request) {
	verified, err := http.PostForm(os.Getenv("CAPTCHA_URL"), url.Values{"secret": {os.Getenv("CAPTCHA_SECRET")}, "response": {r.PostFormValue("response")}})
	if err != nil {
		http.Error(w, "try again later", http.StatusBadGateway)
		return
	}
	defer verified.Body.Close()
	var result struct{ Success bool }
	if err := json.NewDecoder(verified.Body).Decode(&result); err != nil || !result.Success {
		http.Error(w, "solve the CAPTCHA again", http.StatusForbidden)
		return
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"challenge": "sms", "sub": r.PostFormValue("number"), "jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix()})
	if err != nil {
		http.Error(w, "the number is no text", http.StatusBadRequest)
		return
	}
	_, _ = io.WriteString(w, sign(claims, os.Getenv("CHALLENGE_SECRET")))
}

// sign returns the token with these claims (JWT, HS256).
func sign(claims []byte, secret string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
