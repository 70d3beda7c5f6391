//! API keys in their file.

use std::os::unix::fs::PermissionsExt;

use signer::access::{AccessError, ApiKey, ApiKeys, Credential, KEYS, KeySecret, Rights};
use signer::digest::hex;
use signer::keys::KeyError;

use crate::served::{api_keys, credential};

#[test]
fn keys_are_read_as_they_were_written_and_others_may_not_look() {
    let folder = tempfile::tempdir().unwrap();
    assert!(ApiKeys::in_folder(folder.path()).unwrap().is_empty());
    for (name, key) in api_keys().iter() {
        ApiKeys::change(folder.path(), |keys| keys.add(name.clone(), key.clone())).unwrap();
    }
    assert_eq!(ApiKeys::in_folder(folder.path()).unwrap(), api_keys());
    let file = folder.path().join(KEYS);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let twice = ApiKeys::change(folder.path(), |keys| {
        keys.add("server".parse().unwrap(), ApiKey { secret: KeySecret::new([9; 32]), rights: all() })
    });
    assert!(matches!(twice, Err(AccessError::Exists(_))));
    ApiKeys::change(folder.path(), |keys| keys.remove(&"server".parse().unwrap())).unwrap();
    assert!(ApiKeys::in_folder(folder.path()).unwrap().get(&"server".parse().unwrap()).is_none());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(ApiKeys::in_folder(folder.path()), Err(AccessError::File(KeyError::Exposed { .. }))));
}

fn all() -> Rights {
    Rights { derive: true, ..Rights::default() }
}

#[test]
fn a_file_with_a_mistake_is_refused_and_no_secret_is_told() {
    let secret = hex(&[0xab; 32]);
    let good = format!("[[key]]\nid = \"a\"\nsecret = \"{secret}\"\nread = true\n");
    assert_eq!(ApiKeys::parse(&good).unwrap().iter().count(), 1);
    for bad in [
        good.replace("read = true", ""),
        good.replace("read", "reads"),
        good.replace("id = \"a\"", "id = \"A b\""),
        good.replace(&secret, &secret[2..]),
        good.replace(&secret, &secret.to_uppercase()),
        good.replace(&format!("\"{secret}\""), &secret),
        format!("{good}{good}"),
        format!("{good}{}", good.replace("id = \"a\"", "id = \"b\"")),
        good.replace("read = true", "sign = [\"../x\"]"),
    ] {
        let error = ApiKeys::parse(&bad).expect_err(&bad);
        let words = format!("{error} {error:?}");
        assert!(!words.contains(&secret[4..20]) && !words.contains("ABAB"), "{words}");
        assert_eq!(error.code(), "SIGNER_API_KEYS_INVALID");
    }
    let text = credential("server").text();
    assert_eq!(Credential::parse(&text).unwrap(), credential("server"));
    assert!(!format!("{:?}", credential("server")).contains(&hex(&signer::digest::sha256(b"server"))));
}
