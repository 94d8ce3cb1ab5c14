//! Bodies: kept byte for byte, in the event or beside it, and read as their sender means them.

use midwatch_commands::Refusal;
use midwatch_events::{
    StreamName,
    delivery::{DeliveryContent, DeliveryEvent},
    id::{BlobId, DeliveryId},
    key::{Bytes, Digest},
    run::BlobRef,
};
use midwatch_log::{Pending, blob};
use sha2::{Digest as _, Sha256};

use crate::{Engine, EngineError, reading};

impl Engine {
    /// Keeps bytes that are too long for an event, durably, and says how an event names them.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn keep<'a>(&'a self, bytes: &'a [u8]) -> Pending<'a, BlobRef, EngineError> {
        Box::pin(async move {
            let id = BlobId::new(uuid::Builder::from_random_bytes(self.world().random::<16>()).into_uuid());
            let salt = self.world().random::<16>();
            blob::put(self.log(), id.uuid(), bytes).await?;
            let digest = Sha256::new().chain_update(salt).chain_update(bytes).finalize();
            Ok(BlobRef {
                blob: id,
                length: bytes.len() as u64,
                salt: Bytes(salt.to_vec()),
                digest: Digest(digest.into()),
            })
        })
    }

    /// The bytes an event names; none once they have expired.
    ///
    /// # Errors
    /// A fault of the database, or bytes that are not what was kept.
    pub fn kept<'a>(&'a self, reference: &'a BlobRef) -> Pending<'a, Option<Vec<u8>>, EngineError> {
        Box::pin(async move {
            let Some(bytes) = blob::get(self.log(), reference.blob.uuid()).await? else { return Ok(None) };
            let digest = Sha256::new().chain_update(&reference.salt.0).chain_update(&bytes).finalize();
            if digest[..] != reference.digest.0 {
                return Err(EngineError::Corrupt(format!("blob {} is not what was kept", reference.blob)));
            }
            Ok(Some(bytes))
        })
    }

    /// The body of a delivery as its sender means it: unpacked, and a form as JSON; none once it was erased.
    ///
    /// # Errors
    /// There is no such delivery, or a fault.
    pub fn reading(&self, delivery: DeliveryId) -> Pending<'_, Option<Vec<u8>>, EngineError> {
        Box::pin(async move {
            let events = self.log().read_stream(&StreamName::delivery(delivery), 1, 1).await?;
            let first = events.first().ok_or(Refusal::NotFound("delivery"))?;
            let Some(DeliveryContent::Received { headers, .. }) = first.content::<DeliveryEvent>()? else {
                return Ok(None);
            };
            let Some(body) = self.body(delivery).await? else { return Ok(None) };
            let header = |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
            let read =
                reading::read(header("content-type"), header("content-encoding"), &body, reading::UNPACKED_BYTES_MAX);
            Ok(Some(read.map_or(body.clone(), std::borrow::Cow::into_owned)))
        })
    }

    /// The body of a delivery, byte for byte as it came; none once it was erased.
    ///
    /// # Errors
    /// There is no such delivery, or a fault.
    pub fn body(&self, delivery: DeliveryId) -> Pending<'_, Option<Vec<u8>>, EngineError> {
        Box::pin(async move {
            let events = self.log().read_stream(&StreamName::delivery(delivery), 1, 1).await?;
            let first = events.first().ok_or(Refusal::NotFound("delivery"))?;
            match first.content::<DeliveryEvent>()? {
                Some(DeliveryContent::Received { body: Some(body), .. }) => Ok(Some(body.0)),
                Some(DeliveryContent::Received { blob: Some(reference), .. }) => self.kept(&reference).await,
                Some(DeliveryContent::Received { .. }) | None => Ok(None),
            }
        })
    }
}
