// Command image makes an image of the last stage of the Dockerfile without a container
// engine: an OCI image layout in a folder. The same files give the same digest, whoever
// makes it, and when.
//
//	go run ./image -arg VERSION=v1.2.3 -arg DATE=2026-01-02T03:04:05Z -out FOLDER linux/amd64=STAGE linux/arm64=STAGE
//
// STAGE is a folder with what the build stage leaves: out/weir, out/doc, out/state and the
// certificates below etc.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	o := options{args: map[string]string{}}
	flag.StringVar(&o.top, "top", "../..", "`folder` of the repository")
	flag.StringVar(&o.out, "out", "", "`folder` to write")
	flag.Func("arg", "`NAME=VALUE` of the Dockerfile", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		o.args[name] = value
		return nil
	})
	flag.Parse()
	digest, err := o.write(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

// options are what the command was asked for.
type options struct {
	top, out string
	args     map[string]string
}

// write writes an index of one image for each of platforms, given as OS/ARCH=STAGE.
func (o options) write(platforms []string) (digest v1.Hash, err error) {
	text, err := os.ReadFile(o.top + "/Dockerfile")
	if err != nil {
		return digest, err
	}
	created, err := time.Parse(time.RFC3339, o.args["DATE"])
	if err != nil {
		return digest, fmt.Errorf("DATE: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		platform, folder, _ := strings.Cut(p, "=")
		s := stage{roots: map[string]string{"": o.top, "build": folder}, args: o.args, created: created, files: map[string]file{}}
		if err := s.run(string(text)); err != nil {
			return digest, fmt.Errorf("Dockerfile: %w", err)
		}
		image, err := s.image(platform)
		if err != nil {
			return digest, err
		}
		is, err := v1.ParsePlatform(platform)
		if err != nil {
			return digest, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: is}})
	}
	if digest, err = index.Digest(); err != nil {
		return digest, err
	}
	// The layout has an index of its own, which names this one.
	path, err := layout.Write(o.out, empty.Index)
	if err != nil {
		return digest, err
	}
	return digest, path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(o.args["VERSION"], "v")}))
}

// image returns the image of the stage.
func (s *stage) image(platform string) (v1.Image, error) {
	layer, err := s.layer()
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.created}, CreatedBy: "Dockerfile"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, _ = strings.Cut(platform, "/")
	config.Created, config.Config = v1.Time{Time: s.created}, s.config
	return mutate.ConfigFile(image, config)
}
