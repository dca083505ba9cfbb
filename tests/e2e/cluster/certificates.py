"""A certificate authority, the certificates it signs, and kubeconfigs that use them."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "365"


@dataclass(frozen=True, slots=True)
class Authority:
    """Keys and certificates as files of one folder; ECDSA, because an RSA key takes 0.1 to 1 s to make."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "ca.key"

    def create(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        _make_key(self.key)
        _openssl("req", "-x509", "-key", str(self.key), "-out", str(self.certificate), "-subj", "/CN=stoker-e2e", "-days", DAYS)

    def key_pair(self, name: str) -> tuple[Path, Path]:
        """A private key and its public key, without a certificate."""
        key, public = self.folder / f"{name}.key", self.folder / f"{name}.pub"
        _make_key(key)
        _openssl("pkey", "-in", str(key), "-pubout", "-out", str(public))
        return key, public

    def sign(self, name: str, subject: str, alternative_names: str) -> tuple[Path, Path]:
        """The certificate and key of `subject` ("/O=group/CN=user"), good for server and client.

        Raises FileExistsError where the name is taken: programs read their files again, and would become somebody else.
        """
        certificate, key, request, extensions = (self.folder / f"{name}.{suffix}" for suffix in ("crt", "key", "csr", "ext"))
        if certificate.exists():
            raise FileExistsError(f"{certificate} has been signed already")
        _make_key(key)
        _openssl("req", "-new", "-key", str(key), "-out", str(request), "-subj", subject)
        extensions.write_text(f"subjectAltName={alternative_names}\nextendedKeyUsage=serverAuth,clientAuth\n", encoding="utf-8")
        signer = ("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial")
        _openssl("x509", "-req", "-in", str(request), *signer, "-out", str(certificate), "-days", DAYS, "-extfile", str(extensions))
        return certificate, key

    def write_kubeconfig(self, path: Path, server: str, subject: str) -> Path:
        """A kubeconfig of `subject`; its certificate is named after the file, so the file's name must be the only one of its kind."""
        certificate, key = self.sign(path.stem, subject, f"DNS:{path.stem}")
        cluster = {"server": server, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "user", "user": {"client-certificate": str(certificate), "client-key": str(key)}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
            "current-context": "local",
        }
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
        return path


def _make_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
