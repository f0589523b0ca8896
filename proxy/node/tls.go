package node

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
)

// loadCertificates loads the certificates. With ACME, the authority validates through the open listeners.
func (n *Node) loadCertificates(ctx context.Context, c config.Listen) error {
	var issuer frontend.Issuer
	if c.ACME != nil {
		at := acme.Options{Log: n.log, HTTPAddr: n.Address("http"), HTTPSAddr: n.Address("https")}
		var err error
		if n.issuer, err = acme.New(ctx, *c.ACME, at); err != nil {
			return err
		}
		n.closers.push("certificate authority", func(context.Context) error { n.issuer.Close(); return nil })
		issuer = n.issuer
	}
	var err error
	if n.certificates, err = frontend.LoadCertificates(c.TLS, issuer, n.log); err != nil {
		return err
	}
	n.registry.MustRegister(n.certificates.Expiry())
	return nil
}

// renewCertificates reloads certificates when their files change, and renews those of ACME, until ctx is done.
func (n *Node) renewCertificates(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	if n.issuer != nil {
		asking.Go(func() { n.issuer.Run(ctx) })
	}
	if n.certificates == nil && n.peerFacing == nil {
		return
	}
	var shown []*frontend.Certificates
	var files []string
	for _, c := range []*frontend.Certificates{n.certificates, n.peerFacing} {
		if c != nil {
			shown, files = append(shown, c), append(files, c.Files()...)
		}
	}
	look := func(w *fsnotify.Watcher) [sha256.Size]byte { return hashFiles(w, files) }
	reload := func(context.Context) {
		for _, c := range shown {
			c.Reload()
		}
	}
	if err := watch(ctx, look, reload); err != nil {
		n.log.Error().Err(err).Msg("certificates are not reloaded; restart weir after they change")
	}
}
